"""Assets of a source cluster: its topics, and `records`, the staged log of each topic."""

# Without `from __future__ import annotations`: Dagster reads annotations to find resources.

import dagster as dg

from assets.keys import (
    asset_group,
    open_context,
    records_key,
    source_topics_key,
    topic_partitions_def,
)
from assets.metadata import staged_metadata
from deltamirror.context import MirrorContext
from deltamirror.run.single_topic import last_stable_offsets, stage_topic
from deltamirror.staging.segment_index import SegmentIndex, last_only
from resources.dagster_resources import MirrorFile, Spark


def source_topics(alias: str) -> dg.AssetSpec:
    """Return the asset of the topics of source cluster *alias*, which applications write."""
    return dg.AssetSpec(
        source_topics_key(alias),
        description=f"Topics of cluster {alias}, written by its applications.",
        group_name=asset_group(alias),
        kinds={"kafka"},
    )


def records(alias: str) -> dg.AssetsDefinition:
    """Return the asset that stages the topics of source cluster *alias*."""

    @dg.asset(
        key=records_key(alias),
        partitions_def=topic_partitions_def(alias),
        deps=[source_topics_key(alias)],
        description=f"Every record of {alias} with its topic, partition and offset.",
        group_name=asset_group(alias),
        kinds={"spark", "deltalake"},
    )
    def _records(
        context: dg.AssetExecutionContext, file: MirrorFile, spark: Spark
    ) -> dg.MaterializeResult[None]:
        """Stage a topic up to the present last stable offsets of its source."""
        topic = context.partition_key
        with open_context(file) as mirror_context:
            before = staged_metadata(mirror_context, alias, topic)["dagster/row_count"]
            workers = spark.workers(mirror_context.config.tasks_max)
            stage_topic(mirror_context, alias, topic, workers)
            numbers = staged_metadata(mirror_context, alias, topic)
            staged_now = numbers["dagster/row_count"] - before
            lag = _lag(mirror_context, alias, topic)
        return dg.MaterializeResult(metadata={"records": staged_now, "lag": lag, **numbers})

    return _records


def _lag(mirror_context: MirrorContext, alias: str, topic: str) -> int:
    segment_index = SegmentIndex(mirror_context.lake.segments(alias), last_only)
    segment_index.refresh()
    frontiers = segment_index.frontiers
    return sum(
        max(0, end - (frontiers[at].next_offset if at in frontiers else 0))
        for at, (_, end) in last_stable_offsets(mirror_context, alias, topic).items()
    )
