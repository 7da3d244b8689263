"""Metrics state of a run: the loops update it at each tick, and a scrape reads it.

No work is done per record: a tick reports a few numbers for each partition that moved.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from deltamirror.context import MirrorContext
from deltamirror.groups.checkpoints import write_checkpoints
from deltamirror.groups.snapshots import latest_commits
from deltamirror.listener import Listener
from deltamirror.timings import Timings
from pipeline.monitoring.sampled_stat import SampledStat
from schemas.config.config import FlowConfig
from schemas.config.flow import Flow
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.monitoring.flow_state import LoopState, PartitionLag
from schemas.monitoring.stats import ValueStats
from schemas.replay.slot_work import CommittedBatch
from schemas.staging.segment import Segment
from schemas.tables import GROUP_OFFSETS


@dataclass(slots=True)
class PartitionTraffic:
    """Records, bytes and latencies of one target partition since the start."""

    records: int = 0
    value_bytes: int = 0
    carried: SampledStat = field(
        default_factory=SampledStat
    )  # of records and bytes: count and total
    ages: SampledStat = field(default_factory=SampledStat)
    latencies: SampledStat = field(default_factory=SampledStat)
    last_age_ms: float | None = None
    last_latency_ms: float | None = None


@dataclass(slots=True)
class CheckpointLatency:
    """Recent durations of writing a group's checkpoints, in ms."""

    recent: SampledStat = field(default_factory=SampledStat)
    last_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """A source group's committed offset in one incarnation of a partition, as last seen."""

    group: str
    partition: TopicPartition
    topic_id: str
    committed: int


class LoopStatus:
    """State of one loop.

    Only the loop's thread writes; any thread may read. Each change replaces `state` as a whole, so
    no lock is needed.
    """

    def __init__(self, loop: str, source: str, target: str = "") -> None:
        now_s = time.monotonic()
        self.state = LoopState(loop, source, target, last_sign_at_s=now_s, began_at_s=now_s)

    def started(self) -> None:
        """Record the start of a tick."""
        now_s = time.monotonic()
        self.state = replace(self.state, began_at_s=now_s, last_sign_at_s=now_s)

    def waiting(self) -> None:
        """Record that another process holds the lease."""
        now_s = time.monotonic()
        self.state = replace(
            self.state, state="waiting", failing_since_s=None, last_sign_at_s=now_s
        )

    def succeeded(
        self, partition_errors: Collection[DeltamirrorError], *, is_paused: bool = False
    ) -> None:
        """Record a successful tick and its *partition_errors*; *is_paused*: all are paused."""
        now_s = time.monotonic()
        self.state = replace(
            self.state,
            state="paused" if is_paused else "running",
            last_sign_at_s=now_s,
            ticks=self.state.ticks + 1,
            ticks_s=self.state.ticks_s + now_s - self.state.began_at_s,
            failing_since_s=None,
            partition_errors=Counter(error.kind for error in partition_errors),
        )

    def failed(self, error: DeltamirrorError) -> None:
        """Record that the tick failed with *error*."""
        now_s, before = time.monotonic(), self.state.failing_since_s
        self.state = replace(
            self.state,
            state="failed",
            last_sign_at_s=now_s,
            ticks=self.state.ticks + 1,
            ticks_s=self.state.ticks_s + now_s - self.state.began_at_s,
            failures=self.state.failures + 1,
            failing_since_s=now_s if before is None else before,
            error=error,
            error_at_ms=int(time.time() * 1000),
        )


class MetricsState(Listener):
    """State of the *flows* of a run. The loops' threads call its methods.

    *address* is the URL of the metrics server, or None while it is not served.
    """

    def __init__(self, flows: Sequence[FlowConfig], timings: Timings | None = None) -> None:
        self.flows = tuple(flows)
        self.timings = timings or Timings()
        self.address: str | None = None
        sources = dict.fromkeys(config.flow.source for config in flows)
        self.stage_loops = {alias: LoopStatus("stage", alias) for alias in sources}
        self.replay_loops = {
            config.flow: LoopStatus("replay", config.flow.source, config.flow.target)
            for config in flows
        }
        self.lock = Lock()
        self.staged_records = dict.fromkeys(sources, 0)
        self.staged_bytes = dict.fromkeys(sources, 0)
        self.watermarks: dict[str, Mapping[TopicPartition, Watermarks]] = {}
        self.partition_lags: dict[Flow, Sequence[PartitionLag]] = {}
        self.traffic: dict[tuple[Flow, TopicPartition], PartitionTraffic] = {}
        self.latencies: dict[tuple[Flow, str, TopicPartition], CheckpointLatency] = {}
        self.commits: dict[Flow, Sequence[GroupCommit]] = {}
        self._statuses = {each.state.name: each for each in self.loop_statuses()}

    def loop_statuses(self) -> list[LoopStatus]:
        """Return the status of every loop."""
        return [*self.stage_loops.values(), *self.replay_loops.values()]

    def tick_started(self, role: str) -> None:
        """Record the start of a tick."""
        self._statuses[role].started()

    def tick_succeeded(
        self,
        role: str,
        errors: Mapping[TopicPartition, PartitionError],
        *,
        is_paused: bool = False,
    ) -> None:
        """Record a successful tick."""
        self._statuses[role].succeeded(errors.values(), is_paused=is_paused)

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        """Record a failed tick."""
        self._statuses[role].failed(error)

    def lease_refused(self, role: str) -> None:
        """Record that another process holds the lease."""
        self._statuses[role].waiting()

    def staged(
        self, alias: str, segments: Sequence[Segment], timestamps: Sequence[ValueStats] = ()
    ) -> None:
        """Count *segments* of source cluster *alias*, each with its records' timestamps."""
        now_s, now_ms = time.monotonic(), int(time.time() * 1000)
        configs = [config for config in self.flows if config.flow.source == alias]
        with self.lock:
            for segment, spread in zip(segments, timestamps, strict=True):
                self.staged_records[alias] += segment.count
                self.staged_bytes[alias] += segment.size_bytes
                for config in configs:
                    if spread.count and config.replicates(segment.topic):
                        target = config.remote_topic(segment.topic)
                        partition = TopicPartition(target, segment.partition)
                        self._age(config.flow, partition, spread.ages_at(now_ms), now_s)

    def watermarks_read(
        self,
        alias: str,
        watermarks: Mapping[TopicPartition, Watermarks],
        errors: Mapping[TopicPartition, PartitionError],
    ) -> None:
        """Record watermarks of *alias*; partitions in *errors* keep their previous ones."""
        previous = self.watermarks.get(alias, {})
        kept = {p: previous[p] for p in errors if p in previous}
        self.watermarks[alias] = {**kept, **watermarks}

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Count *moves* of *flow*, except those found by pairing, which sent no record."""
        now_s, now_ms = time.monotonic(), int(time.time() * 1000)
        with self.lock:
            for move in moves:
                if move.load is None or not move.records:
                    continue
                partition_traffic = self._traffic_of(flow, move.target)
                partition_traffic.records += move.records
                partition_traffic.value_bytes += move.load.value_bytes
                partition_traffic.carried.add(
                    ValueStats(move.records, move.load.value_bytes), now_s
                )
                latencies = move.load.timestamps.ages_at(now_ms)
                if latencies.count:
                    partition_traffic.latencies.add(latencies, now_s)
                    partition_traffic.last_latency_ms = latencies.last

    def lag_measured(self, flow: Flow, partition_lags: Sequence[PartitionLag]) -> None:
        """Record the lag of the partitions of *flow*; drop the partitions that are gone.

        A partition is gone if staging reads no watermarks of it any more and all its staged records
        are replayed. A partition that is not in *partition_lags* yet is kept: they may be older
        than its first staged records.
        """
        watermarks = self.watermarks.get(flow.source)
        present = [
            s
            for s in partition_lags
            if watermarks is None or s.source.topic_partition in watermarks or s.replayed < s.staged
        ]
        with self.lock:
            known = {s.target for s in (*self.partition_lags.get(flow, ()), *partition_lags)}
            gone = known - {s.target for s in present}
            self.partition_lags[flow] = present
            for key in [k for k in self.traffic if k[0] == flow and k[1] in gone]:
                del self.traffic[key]
            for latency_key in [k for k in self.latencies if k[0] == flow and k[2] in gone]:
                del self.latencies[latency_key]

    def record_checkpoints(
        self, flow: Flow, written: Iterable[tuple[str, TopicPartition]], took_ms: float
    ) -> None:
        """Record that writing the checkpoints *written* (group, target partition) *took_ms*."""
        now_s = time.monotonic()
        with self.lock:
            for group, target in written:
                latency = self.latencies.setdefault((flow, group, target), CheckpointLatency())
                latency.recent.add(ValueStats(1, took_ms, took_ms, took_ms, took_ms), now_s)
                latency.last_ms = took_ms

    def committed(self, flow: Flow, commits: Sequence[GroupCommit]) -> None:
        """Record the commits of the flow's groups; drop the groups that are gone."""
        groups = {commit.group for commit in commits}
        with self.lock:
            self.commits[flow] = commits
            for key in [k for k in self.latencies if k[0] == flow and k[1] not in groups]:
                del self.latencies[key]

    def _age(self, flow: Flow, target: TopicPartition, ages: ValueStats, now_s: float) -> None:
        partition_traffic = self._traffic_of(flow, target)
        partition_traffic.ages.add(ages, now_s)
        partition_traffic.last_age_ms = ages.last

    def _traffic_of(self, flow: Flow, target: TopicPartition) -> PartitionTraffic:
        return self.traffic.setdefault((flow, target), PartitionTraffic())


def write_timed_checkpoints(
    context: MirrorContext, flow_config: FlowConfig, metrics_state: MetricsState
) -> None:
    """Write the flow's changed checkpoints, and record in *metrics_state* how long that took.

    The time is that of the whole round, as in MirrorMaker 2's checkpoint-latency-ms. It is recorded
    only if checkpoints are emitted to the target.
    """
    started_s = time.monotonic()
    rows = write_checkpoints(context, flow_config)
    took_ms = (time.monotonic() - started_s) * 1000
    if flow_config.emit_checkpoints_interval_s is not None:
        written = [(r["group"], TopicPartition(r["target_topic"], r["partition"])) for r in rows]
        metrics_state.record_checkpoints(flow_config.flow, written, took_ms)
    record_group_commits(context, flow_config, metrics_state)


def record_group_commits(
    context: MirrorContext, flow_config: FlowConfig, metrics_state: MetricsState
) -> None:
    """Record the newest commits of the flow's groups in *metrics_state*."""
    table = context.lake.cluster_table(flow_config.flow.source, GROUP_OFFSETS)
    commits = [
        GroupCommit(
            row["group"],
            TopicPartition(row["topic"], row["partition"]),
            row["topic_id"],
            row["committed"],
        )
        for row in latest_commits(table.rows()).to_pylist()
        if flow_config.groups.matches(row["group"]) and flow_config.replicates(row["topic"])
    ]
    metrics_state.committed(flow_config.flow, commits)
