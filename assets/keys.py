"""Asset keys, partitions and groups of the definitions, and the context of their steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from deltamirror.context import MirrorContext
from resources.dagster_resources import MirrorFile
from schemas.config.flow import Flow
from schemas.errors.base import DeltamirrorError


def records_key(alias: str) -> dg.AssetKey:
    """Return the key of the staged log of source cluster *alias*."""
    return dg.AssetKey([alias, "records"])


def offset_map_key(flow: Flow) -> dg.AssetKey:
    """Return the key of the offset map of *flow*, whose materialization is the replay."""
    return dg.AssetKey([flow.key, "offset_map"])


def source_topics_key(alias: str) -> dg.AssetKey:
    """Return the key of the topics of source cluster *alias*."""
    return dg.AssetKey([alias, "topics"])


def replays_key(flow: Flow) -> dg.AssetKey:
    """Return the key of the point-in-time replays of *flow*."""
    return dg.AssetKey([flow.key, "replays"])


def topic_partitions_def(owner: str) -> dg.DynamicPartitionsDefinition:
    """Return the topics of *owner* (a cluster's alias or a flow's key) as partitions."""
    return dg.DynamicPartitionsDefinition(name=f"{owner}__topics")


def asset_group(owner: str) -> str:
    """Return the asset group of *owner*. Dagster does not allow `-` and `.` in its name."""
    return re.sub(r"[^A-Za-z0-9_]", "_", owner)


@contextmanager
def open_context(file: MirrorFile) -> Iterator[MirrorContext]:
    """Yield the context of *file*'s configuration; convert DeltamirrorError to dg.Failure."""
    try:
        context = MirrorContext(file.config())
        try:
            yield context
        finally:
            context.close()
    except DeltamirrorError as error:
        raise dg.Failure(str(error), metadata={"error": error.kind, "hint": error.hint}) from error
