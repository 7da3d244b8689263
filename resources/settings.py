"""An mm2.properties file in, a `Config` out: MirrorMaker 2's precedence and its defaults."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from resources.librdkafka import translate
from resources.mm2_file import Mm2File
from schemas.config import MIB, ClusterConfig, Config, FlowConfig
from schemas.errors import ConfigError, RefusedKeyError
from schemas.flow import Flow
from schemas.keys import (
    CONFIG_PROPERTIES_EXCLUDE,
    GROUPS_EXCLUDE,
    TOPICS_EXCLUDE,
    parse_boolean,
    parse_integer,
    split_list,
)
from schemas.name_filter import NameFilter
from schemas.replication_policy import DefaultPolicy, IdentityPolicy, ReplicationPolicy

# Our own progress on a target: never snapshotted, never translated.
OWN_GROUPS = r"deltamirror\..*"


def read_config(path: Path) -> Config:
    """Return what the file at *path* comes to. Raises a ConfigError for what cannot be meant."""
    file = Mm2File.read(path)
    flows = tuple(_flow(file, flow) for flow in _enabled_flows(file))
    clusters = {alias: _cluster(file, alias, flows) for alias in file.aliases}
    top = _Top(file)
    return Config(
        clusters=clusters,
        flows=flows,
        lake=_lake(file),
        tasks_max=_tasks_max(file, flows),
        max_batch_records=top.integer("deltamirror.stage.max.records", 2_000_000),
        max_batch_bytes=top.integer("deltamirror.stage.max.bytes", 512 * MIB),
        chunk_records=top.integer("deltamirror.replay.chunk.records", 50_000),
        chunk_bytes=top.integer("deltamirror.replay.chunk.bytes", 32 * MIB),
        stage_retention_ms=top.retention("deltamirror.stage.retention.ms"),
        stage_retention_bytes=top.retention("deltamirror.stage.retention.bytes"),
    )


class _Top:
    """Typed values of the top level."""

    def __init__(self, file: Mm2File) -> None:
        self.file = file

    def integer(self, key: str, default: int) -> int:
        return parse_integer(self.file.values.get(key, str(default)), 1)

    def retention(self, key: str) -> int | None:
        """Return a bound; -1 (Kafka's word for it) and absence keep for ever."""
        bound = parse_integer(self.file.values.get(key, "-1"), -1)
        return None if bound < 0 else bound


def _enabled_flows(file: Mm2File) -> list[Flow]:
    pairs = itertools.permutations(file.aliases, 2)
    return [flow for flow in itertools.starmap(Flow, pairs) if _is_enabled(file, flow)]


def _is_enabled(file: Mm2File, flow: Flow) -> bool:
    """Return whether *flow* is on; a top-level `enabled` counts only where heartbeats are.

    MirrorMaker 2 starts a flow for `A->B.enabled` or for heartbeats, and only a flow that it
    starts reads the top level.
    """
    own = file.values.get(f"{flow.name}.enabled")
    if own is not None:
        return parse_boolean(own)
    heartbeats = file.flow_value(flow, "emit.heartbeats.enabled") or "true"
    return parse_boolean(heartbeats) and parse_boolean(file.values.get("enabled", "false"))


def _cluster(file: Mm2File, alias: str, flows: tuple[FlowConfig, ...]) -> ClusterConfig:
    if not split_list(file.values.get(f"{alias}.bootstrap.servers", "")):
        raise RefusedKeyError(f"{alias}.bootstrap.servers", "every cluster needs one")
    consumer = _consumer(file, alias, [config.flow for config in flows])
    return ClusterConfig(
        alias=alias,
        bootstrap_servers=",".join(split_list(file.values[f"{alias}.bootstrap.servers"])),
        consumer=translate("consumer", consumer),
        producer=translate("producer", file.client(alias, "producer")),
        admin=translate("admin", file.client(alias, "admin")),
        auto_offset_reset=consumer.get("auto.offset.reset", "earliest"),
    )


def _consumer(file: Mm2File, alias: str, flows: list[Flow]) -> dict[str, str]:
    """Return the Java properties of the one consumer that reads *alias* for all its flows."""
    wanted = [file.client(alias, "consumer", flow) for flow in flows if flow.source == alias]
    if any(properties != wanted[0] for properties in wanted):
        raise ConfigError(
            f"flows from {alias} ask for different consumers, but {alias} is read once for all of "
            f"them: write {alias}.consumer.* instead"
        )
    return wanted[0] if wanted else file.client(alias, "consumer")


def _flow(file: Mm2File, flow: Flow) -> FlowConfig:
    def text(key: str, default: str) -> str:
        value = file.flow_value(flow, key)
        return default if value is None else value

    def interval(enabled: str, seconds: str, default: str) -> float | None:
        length = parse_integer(text(seconds, default))
        return float(length) if parse_boolean(text(enabled, "true")) and length > 0 else None

    def names(include: str, exclude: str, default: str, *more: str) -> NameFilter:
        left_out = (*split_list(text(exclude, default)), *more)
        return NameFilter(split_list(text(include, ".*")), left_out)

    return FlowConfig(
        flow=flow,
        topics=names("topics", "topics.exclude", TOPICS_EXCLUDE),
        groups=names("groups", "groups.exclude", GROUPS_EXCLUDE, OWN_GROUPS),
        policy=_policy(file, flow),
        replication_factor=parse_integer(text("replication.factor", "2"), -1),
        producer=translate("producer", file.data_producer(flow)),
        refresh_topics_interval_s=interval(
            "refresh.topics.enabled", "refresh.topics.interval.seconds", "600"
        ),
        emit_checkpoints_interval_s=interval(
            "emit.checkpoints.enabled", "emit.checkpoints.interval.seconds", "60"
        ),
        config_properties_exclude=NameFilter(
            split_list(text("config.properties.exclude", CONFIG_PROPERTIES_EXCLUDE))
        ),
        heartbeats_replication=parse_boolean(text("heartbeats.replication.enabled", "true")),
    )


def _policy(file: Mm2File, flow: Flow) -> ReplicationPolicy:
    """Return the naming rule; a separator for internal topics is read only beside a separator."""
    separator = file.flow_value(flow, "replication.policy.separator")
    internal = file.flow_value(flow, "replication.policy.internal.topic.separator.enabled")
    between = separator if separator is not None else "."
    apart = between if parse_boolean(internal or "true") else "."
    name = file.flow_value(flow, "replication.policy.class") or "DefaultReplicationPolicy"
    if name.rpartition(".")[2] == "IdentityReplicationPolicy":
        return IdentityPolicy(between, apart, flow.source)
    return DefaultPolicy(between, apart)


def _lake(file: Mm2File) -> str:
    """Return the lake's URI, or its path; a relative one lies beside the file."""
    lake = file.values.get("deltamirror.lake", "./lake").strip()
    return lake if "://" in lake else str((file.path.absolute().parent / lake).resolve())


def _tasks_max(file: Mm2File, flows: tuple[FlowConfig, ...]) -> int:
    """Return how many tasks run at a time: the most that any flow asks for, else the cores."""
    asked = [file.flow_value(config.flow, "tasks.max") for config in flows]
    numbers = [parse_integer(text, 1) for text in asked if text is not None]
    return max(numbers, default=os.cpu_count() or 1)
