"""What the loops of a run moved and how far they are: told by them tick by tick, read at a scrape.

Nothing here is done per record: a tick tells a few numbers of each partition that moved.
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
from schemas.errors import DeltamirrorError, PartitionError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.monitoring.flow_state import LoopState, PartitionLag
from schemas.monitoring.stats import ValueStats
from schemas.replay.slot_work import CommittedBatch
from schemas.staging.segment import Segment
from schemas.tables import GROUP_OFFSETS


@dataclass(slots=True)
class PartitionTraffic:
    """What went into one target partition since the start."""

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
    """How long a group's checkpoints took."""

    recent: SampledStat = field(default_factory=SampledStat)
    last_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """What a group of the source has committed in an incarnation of a partition, as last seen."""

    group: str
    partition: TopicPartition
    topic_id: str
    committed: int


class LoopStatus:
    """What one loop says of itself, for any thread to read.

    Only the loop's thread writes. Each change replaces `state` in one go: no lock is needed.
    """

    def __init__(self, loop: str, source: str, target: str = "") -> None:
        now_s = time.monotonic()
        self.state = LoopState(loop, source, target, last_sign_at_s=now_s, began_at_s=now_s)

    def started(self) -> None:
        """Note that a tick begins."""
        now_s = time.monotonic()
        self.state = replace(self.state, began_at_s=now_s, last_sign_at_s=now_s)

    def waiting(self) -> None:
        """Note that another process has the lease."""
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
        """Note that the tick failed with *error*."""
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
    """What is known of the *flows* of a run. Its methods are called from the loops' threads.

    *address* is where it can be read over HTTP, once it can.
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
        """Return the watch on every loop."""
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
        """Record watermarks of *alias*; partitions in *errors* keep their former ones."""
        former = self.watermarks.get(alias, {})
        kept = {p: former[p] for p in errors if p in former}
        self.watermarks[alias] = {**kept, **watermarks}

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Count *moves* of *flow*; those that were found by pairing brought no record."""
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
        """Note how far the partitions of *flow* are; forget those that are gone.

        Gone is what the source does not have any more, as far as this process looks at it, and
        what nothing waits of; not what *partition_lags* do not know yet, being older than what was
        staged meanwhile.
        """
        watermarks = self.watermarks.get(flow.source)
        there = [
            s
            for s in partition_lags
            if watermarks is None or s.source.topic_partition in watermarks or s.replayed < s.staged
        ]
        with self.lock:
            known = {s.target for s in (*self.partition_lags.get(flow, ()), *partition_lags)}
            gone = known - {s.target for s in there}
            self.partition_lags[flow] = there
            for place in [p for p in self.traffic if p[0] == flow and p[1] in gone]:
                del self.traffic[place]
            for key in [k for k in self.latencies if k[0] == flow and k[2] in gone]:
                del self.latencies[key]

    def record_checkpoints(
        self, flow: Flow, written: Iterable[tuple[str, TopicPartition]], took_ms: float
    ) -> None:
        """Note that the checkpoints *written* (group and target partition) took *took_ms*."""
        now_s = time.monotonic()
        with self.lock:
            for group, target in written:
                latency = self.latencies.setdefault((flow, group, target), CheckpointLatency())
                latency.recent.add(ValueStats(1, took_ms, took_ms, took_ms, took_ms), now_s)
                latency.last_ms = took_ms

    def committed(self, flow: Flow, commits: Sequence[GroupCommit]) -> None:
        """Note what the groups of the flow's source have committed; forget groups that are gone."""
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
    """Write the checkpoints of the flow that changed, and tell *metrics_state* how long that took.

    The time goes from the beginning of the round to the answer to all of it, as MirrorMaker 2's
    checkpoint-latency-ms does; where none are emitted there is none.
    """
    began_s = time.monotonic()
    rows = write_checkpoints(context, flow_config)
    took_ms = (time.monotonic() - began_s) * 1000
    if flow_config.emit_checkpoints_interval_s is not None:
        written = [(r["group"], TopicPartition(r["target_topic"], r["partition"])) for r in rows]
        metrics_state.record_checkpoints(flow_config.flow, written, took_ms)
    record_group_commits(context, flow_config, metrics_state)


def record_group_commits(
    context: MirrorContext, flow_config: FlowConfig, metrics_state: MetricsState
) -> None:
    """Tell *metrics_state* what the flow's groups have committed, as they were last seen."""
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
