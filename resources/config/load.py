"""Load an mm2.properties file as a `Config`, with MirrorMaker 2's precedence and defaults."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from resources.config.client_properties import client_settings
from resources.config.key_check import check_keys, reject_bad_keys
from resources.config.mm2_properties import Mm2File
from resources.config.replication_policy import create_policy
from schemas.config.config import (
    ClusterConfig,
    Config,
    FlowConfig,
    HeartbeatConfig,
    OffsetSyncsConfig,
)
from schemas.config.flow import Flow
from schemas.config.flow_keys import default_of
from schemas.config.keys import KeyCheck, parse_boolean, parse_integer, split_list
from schemas.errors.base import ConfigError
from schemas.mm2.name_filter import NameFilter
from schemas.mm2.replication_policy import ReplicationPolicy

# deltamirror's progress groups, which are never snapshotted or translated.
INTERNAL_GROUPS = r"deltamirror\..*"
# A hundred years: Python's waits overflow at about three hundred.
MAX_INTERVAL_S = 100 * 365 * 86_400


def read_config(path: Path) -> Config:
    """Load the file at *path*. Raises a ConfigError that lists all wrong keys."""
    file = Mm2File.read(path)
    reject_bad_keys(file)
    flows = tuple(_flow(file, flow) for flow in file.enabled_flows())
    clusters = {alias: _cluster(file, alias, flows) for alias in file.aliases}
    return Config(
        clusters=clusters,
        flows=flows,
        lake=_lake(file),
        tasks_max=_tasks_max(file, flows),
        max_batch_records=_integer(file, "deltamirror.stage.max.records"),
        max_batch_bytes=_integer(file, "deltamirror.stage.max.bytes"),
        transaction_records=_integer(file, "deltamirror.replay.chunk.records"),
        transaction_bytes=_integer(file, "deltamirror.replay.chunk.bytes"),
        stage_retention_ms=_retention(file, "deltamirror.stage.retention.ms"),
        stage_retention_bytes=_retention(file, "deltamirror.stage.retention.bytes"),
        vacuum_retention_ms=_integer(file, "deltamirror.stage.vacuum.retention.ms"),
        heartbeats=tuple(_heartbeats(file)),
        metrics_listen=_listen(file, "deltamirror.metrics.listen"),
    )


def check_config(path: Path) -> list[KeyCheck]:
    """Return the check of each key of the file, with secrets masked. Raises ConfigFileError."""
    return check_keys(Mm2File.read(path))


def _integer(file: Mm2File, key: str) -> int:
    return parse_integer(file.values.get(key, default_of(key)))


def _retention(file: Mm2File, key: str) -> int | None:
    """Return the limit of *key*; None for -1, which as in Kafka means no limit."""
    bound = _integer(file, key)
    return None if bound < 0 else bound


def _listen(file: Mm2File, key: str) -> tuple[str, int] | None:
    """Return the host and the port of *key*; None if it is empty."""
    host, _, port = file.values.get(key, default_of(key)).strip().rpartition(":")
    return (host.strip("[]"), int(port)) if port else None


def _cluster(file: Mm2File, alias: str, flows: tuple[FlowConfig, ...]) -> ClusterConfig:
    admin = file.client(alias, "admin")
    consumer = _consumer(file, alias, [config.flow for config in flows])
    return ClusterConfig(
        alias=alias,
        bootstrap_servers=",".join(split_list(admin["bootstrap.servers"])),
        consumer=client_settings("consumer", consumer, f"{alias}.consumer."),
        producer=client_settings("producer", file.client(alias, "producer"), f"{alias}.producer."),
        admin=client_settings("admin", admin, f"{alias}.admin."),
        auto_offset_reset=consumer.get("auto.offset.reset", "earliest").strip(),
    )


def _consumer(file: Mm2File, alias: str, flows: list[Flow]) -> dict[str, str]:
    """Return the Java properties of the one consumer that reads *alias* for all its flows."""
    wanted = [file.client(alias, "consumer", flow) for flow in flows if flow.source == alias]
    if any(properties != wanted[0] for properties in wanted):
        raise ConfigError(
            f"{file.path}: flows from {alias} configure different consumers, but {alias} is read "
            f"once for all of them: write {alias}.consumer.* instead"
        )
    return wanted[0] if wanted else file.client(alias, "consumer")


def _flow(file: Mm2File, flow: Flow) -> FlowConfig:
    text = partial(_text, file, flow)

    def names(key: str) -> tuple[str, ...]:
        return split_list(text(key))

    producer_key = f"{flow.name}.producer.override."
    return FlowConfig(
        flow=flow,
        topics=NameFilter(names("topics"), names("topics.exclude")),
        groups=NameFilter(names("groups"), (*names("groups.exclude"), INTERNAL_GROUPS)),
        policy=_policy(file, flow),
        replication_factor=parse_integer(text("replication.factor")),
        producer=client_settings("producer", file.data_producer(flow), producer_key),
        refresh_topics_interval_s=_interval_s(file, flow, "refresh.topics"),
        emit_checkpoints_interval_s=_interval_s(file, flow, "emit.checkpoints"),
        offset_syncs=_offset_syncs(file, flow),
        sync_group_offsets_interval_s=_interval_s(file, flow, "sync.group.offsets"),
        config_properties_exclude=NameFilter(names("config.properties.exclude")),
        checkpoints_replication_factor=_replication_factor(file, flow, "checkpoints"),
        heartbeats_replication=parse_boolean(text("heartbeats.replication.enabled")),
        # MirrorMaker 2 reads it only at the flow, because it is no key of its connectors.
        uses_source_defaults=file.at_flow(flow).get("use.defaults.from", "").strip() == "source",
        sync_topic_configs_interval_s=_interval_s(file, flow, "sync.topic.configs"),
        sync_topic_acls_interval_s=_interval_s(file, flow, "sync.topic.acls"),
    )


def _offset_syncs(file: Mm2File, flow: Flow) -> OffsetSyncsConfig | None:
    """Return the topic of offset syncs. Its name has the alias of the other cluster."""
    if not parse_boolean(_text(file, flow, "emit.offset-syncs.enabled")):
        return None
    is_on_source = _text(file, flow, "offset-syncs.topic.location").strip() == "source"
    cluster, other = (flow.source, flow.target) if is_on_source else (flow.target, flow.source)
    return OffsetSyncsConfig(
        cluster=cluster,
        topic=_policy(file, flow).offset_syncs_topic(other),
        lag_max=max(0, parse_integer(_text(file, flow, "offset.lag.max"))),
        replication_factor=_replication_factor(file, flow, "offset-syncs"),
    )


def _heartbeats(file: Mm2File) -> Iterator[HeartbeatConfig]:
    """Yield the pairs of clusters that emit heartbeats: all for which they are not disabled."""
    for flow in file.possible_flows():
        interval_s = _interval_s(file, flow, "emit.heartbeats")
        if interval_s is not None:
            copies = _replication_factor(file, flow, "heartbeats")
            topic = _policy(file, flow).heartbeats_topic
            yield HeartbeatConfig(flow, topic, interval_s, copies)


def _text(file: Mm2File, flow: Flow, key: str) -> str:
    """Return the value of *key* at *flow*, else at the top level, else the default."""
    value = file.flow_value(flow, key)
    return default_of(key) if value is None else value


def _interval_s(file: Mm2File, flow: Flow, what: str) -> float | None:
    """Return the interval of *what* in seconds; None if it is disabled after the start."""
    length = parse_integer(_text(file, flow, f"{what}.interval.seconds"))
    is_on = parse_boolean(_text(file, flow, f"{what}.enabled"))
    return float(min(length, MAX_INTERVAL_S)) if is_on and length > 0 else None


def _replication_factor(file: Mm2File, flow: Flow, topic: str) -> int:
    """Return an internal topic's replication factor. A small cluster refuses MirrorMaker 2's 3."""
    own = file.flow_value(flow, f"{topic}.topic.replication.factor")
    return parse_integer(own or _text(file, flow, "replication.factor"))


def _policy(file: Mm2File, flow: Flow) -> ReplicationPolicy:
    """Return the policy. A separator of internal topics needs replication.policy.separator."""
    separator = file.flow_value(flow, "replication.policy.separator")
    internal = file.flow_value(flow, "replication.policy.internal.topic.separator.enabled")
    between = separator if separator is not None else "."
    apart = between if parse_boolean(internal or "true") else "."
    name = _text(file, flow, "replication.policy.class").strip()
    return create_policy(name, flow, between, apart)


def _lake(file: Mm2File) -> str:
    """Return the lake's folder. A relative path starts at the file's folder."""
    lake = file.values.get("deltamirror.lake", "./lake").strip()
    return str((file.path.absolute().parent / lake).resolve())


def _tasks_max(file: Mm2File, flows: tuple[FlowConfig, ...]) -> int:
    """Return the number of tasks: the largest tasks.max of all flows, else the cores."""
    texts = [file.flow_value(config.flow, "tasks.max") for config in flows]
    numbers = [parse_integer(text, 1) for text in texts if text is not None]
    return max(numbers, default=os.cpu_count() or 1)
