"""The parsed content of an mm2.properties file: clusters, flows and limits.

Every value can be pickled, because Spark tasks receive it, and shows no secret in its repr.
Client settings have librdkafka's names and are complete, except for the settings that depend on
the use of a client (group.id, transactional.id, isolation.level, ...). A replication factor of -1
is the brokers' default. An interval of None turns the periodic action off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.config.flow import Flow
from schemas.errors.configuration import UnknownFlowError
from schemas.mm2.name_filter import NameFilter
from schemas.mm2.replication_policy import ReplicationPolicy, is_cycle

ClientSettings = Mapping[str, str | int | float | bool]

MIB = 1024 * 1024

CONFIG_VARIABLE = "DELTAMIRROR_CONFIG"
"""The environment variable that names the configuration file."""


@dataclass(frozen=True)
class ClusterConfig:
    """A cluster with its alias, and the settings of its consumers, producers and admin clients."""

    alias: str
    bootstrap_servers: str
    consumer: ClientSettings = field(repr=False)
    producer: ClientSettings = field(repr=False)
    admin: ClientSettings = field(repr=False)
    # Where staging of a partition starts that exists when its topic is first selected.
    auto_offset_reset: str = "earliest"


@dataclass(frozen=True)
class OffsetSyncsConfig:
    """A flow's offset syncs (KIP-716). At most *lag_max* records are between two of them."""

    cluster: str
    topic: str
    lag_max: int
    replication_factor: int


@dataclass(frozen=True)
class FlowConfig:
    """One enabled flow: the topics and groups to replicate, and the names of remote topics."""

    flow: Flow
    topics: NameFilter
    groups: NameFilter
    policy: ReplicationPolicy
    replication_factor: int
    producer: ClientSettings = field(repr=False)
    refresh_topics_interval_s: float | None
    emit_checkpoints_interval_s: float | None
    config_properties_exclude: NameFilter
    heartbeats_replication: bool = True
    checkpoints_replication_factor: int = -1
    # Whether a remote topic gets the source's default settings instead of the target's.
    uses_source_defaults: bool = False
    sync_topic_configs_interval_s: float | None = None
    sync_topic_acls_interval_s: float | None = None
    sync_group_offsets_interval_s: float | None = None
    # None: no offset syncs are written.
    offset_syncs: OffsetSyncsConfig | None = None

    def replicates(self, topic: str) -> bool:
        """Return whether *topic* of the source is replicated, by MirrorMaker 2's rules.

        Heartbeats topics are replicated even if the filter excludes them (KIP-1089). Internal
        topics and topics that came from the target are never replicated.
        """
        wanted = self.topics.matches(topic) or (
            self.heartbeats_replication and self.policy.is_heartbeats_topic(topic)
        )
        if not wanted or self.policy.is_internal(topic):
            return False
        return not is_cycle(self.policy, topic, self.flow.target)

    def remote_topic(self, topic: str) -> str:
        return self.policy.remote_topic(self.flow.source, topic)


@dataclass(frozen=True)
class HeartbeatConfig:
    """The heartbeats of *flow*, written to *topic* on its target, even if the flow is disabled."""

    flow: Flow
    topic: str
    interval_s: float
    replication_factor: int


@dataclass(frozen=True)
class Config:
    """The content of a whole file: clusters, enabled flows, the lake and limits.

    *heartbeats* has every pair of clusters that emits them. As in MirrorMaker 2 this includes
    pairs that are no enabled flow: B->A if only A->B is enabled, so that A has heartbeats to
    replicate to B. *lake* is a folder. A retention of None keeps staged records permanently.
    """

    clusters: Mapping[str, ClusterConfig]
    flows: tuple[FlowConfig, ...]
    lake: str
    tasks_max: int
    max_batch_records: int = 2_000_000
    max_batch_bytes: int = 512 * MIB
    transaction_records: int = 50_000
    transaction_bytes: int = 16 * MIB
    stage_retention_ms: int | None = None
    stage_retention_bytes: int | None = None
    vacuum_retention_ms: int = 900_000
    heartbeats: tuple[HeartbeatConfig, ...] = ()
    # Host and port (0: any free port) of /metrics and /healthz. None: they are not served.
    metrics_listen: tuple[str, int] | None = None

    def flow(self, name: str) -> FlowConfig:
        """Return the flow called *name*. Raises UnknownFlowError, whose hint lists all flows."""
        for config in self.flows:
            if config.flow.name == name.strip():
                return config
        known = ", ".join(config.flow.name for config in self.flows)
        raise UnknownFlowError(name, hint=f"Enabled flows: {known}." if known else None)

    def sources(self) -> tuple[str, ...]:
        """Return the aliases that are the source of an enabled flow, in the flows' order."""
        return tuple(dict.fromkeys(config.flow.source for config in self.flows))
