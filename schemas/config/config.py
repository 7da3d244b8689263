"""What an mm2.properties file comes to: clusters, flows and the bounds of the work.

Every value here can be pickled (it travels to Spark tasks) and shows no secret in its repr.
Client settings are complete and in librdkafka's names; the code that opens a client only adds
what belongs to its duty (group.id, transactional.id, isolation.level, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.config.flow import Flow
from schemas.errors import UnknownFlowError
from schemas.mm2.name_filter import NameFilter
from schemas.mm2.replication_policy import ReplicationPolicy, is_cycle

ClientSettings = Mapping[str, str | int | float | bool]

MIB = 1024 * 1024


CONFIG_VARIABLE = "DELTAMIRROR_CONFIG"
"""The environment variable that names the configuration file."""


@dataclass(frozen=True)
class ClusterConfig:
    """A cluster under its alias, and how to reach it as a reader, a writer and an administrator."""

    alias: str
    bootstrap_servers: str
    consumer: ClientSettings = field(repr=False)
    producer: ClientSettings = field(repr=False)
    admin: ClientSettings = field(repr=False)
    # Where a partition that exists when its topic is first selected begins: earliest or latest.
    auto_offset_reset: str = "earliest"


@dataclass(frozen=True)
class OffsetSyncsConfig:
    """Which *cluster* of a flow has its offset syncs in which *topic* (KIP-716).

    At most *lag_max* records lie between two syncs; a *replication_factor* of -1 is the brokers'
    default.
    """

    cluster: str
    topic: str
    lag_max: int
    replication_factor: int


@dataclass(frozen=True)
class FlowConfig:
    """One enabled flow: what of the source arrives on the target, and under which name."""

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
    # -1 is the brokers' default.
    checkpoints_replication_factor: int = -1
    # Whether a remote topic has the source's defaults rather than the target's.
    uses_source_defaults: bool = False
    # How often settings and ACLs of topics are synced; None: never.
    sync_topic_configs_interval_s: float | None = None
    sync_topic_acls_interval_s: float | None = None
    # None: the target's own groups are left alone.
    sync_group_offsets_interval_s: float | None = None
    # None: none are written.
    offset_syncs: OffsetSyncsConfig | None = None

    def replicates(self, topic: str) -> bool:
        """Return whether *topic* of the source belongs on the target, as MirrorMaker 2 decides.

        Heartbeats topics come along whatever the filter says (KIP-1089); internal topics and
        topics that have been on the target before never do.
        """
        wanted = self.topics.matches(topic) or (
            self.heartbeats_replication and self.policy.is_heartbeats_topic(topic)
        )
        return (
            wanted
            and not self.policy.is_internal(topic)
            and not is_cycle(self.policy, topic, self.flow.target)
        )

    def remote_topic(self, topic: str) -> str:
        """Return what *topic* of the source is called on the target."""
        return self.policy.remote_topic(self.flow.source, topic)


@dataclass(frozen=True)
class HeartbeatConfig:
    """How often *flow*'s sign of life is written to *topic* on its target, enabled or not.

    A *replication_factor* of -1 is the brokers' default.
    """

    flow: Flow
    topic: str
    interval_s: float
    replication_factor: int


@dataclass(frozen=True)
class Config:
    """A whole file: its clusters, its enabled flows, the lake, and how much is done at a time.

    *heartbeats* are of every pair that emits them: MirrorMaker 2 does so for pairs that are no
    enabled flow too, B->A where only A->B is, so that A has some to send to B. *lake* is a
    folder. Bytes are bytes, intervals milliseconds; a retention of None keeps for ever.
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
    heartbeats: tuple[HeartbeatConfig, ...] = ()
    # Host and port (0: any that is free) of /metrics and /healthz; None: they are not served.
    metrics_listen: tuple[str, int] | None = None

    def flow(self, name: str) -> FlowConfig:
        """Return the flow written as *name*. Raises UnknownFlowError, which names the known."""
        for config in self.flows:
            if config.flow.name == name.strip():
                return config
        known = ", ".join(config.flow.name for config in self.flows)
        raise UnknownFlowError(name, hint=f"Enabled flows: {known}." if known else None)

    def sources(self) -> tuple[str, ...]:
        """Return the aliases that are the source of an enabled flow, in the flows' order."""
        return tuple(dict.fromkeys(config.flow.source for config in self.flows))
