"""Metrics state of a run: the loops update it at each tick, and a scrape reads it.

No work is done per record: a tick reports a few numbers for each partition that moved.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from deltamirror.context import MirrorContext
from deltamirror.groups.checkpoints import write_checkpoints
from deltamirror.groups.snapshots import flow_commits
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


@dataclass(slots=True)
class LatencyStat:
    """The recent values of a latency in ms, and the last of all."""

    recent: SampledStat = field(default_factory=SampledStat)
    last_ms: float | None = None

    def add(self, latencies: ValueStats, now_s: float) -> None:
        if latencies.count:
            self.recent.add(latencies, now_s)
            self.last_ms = latencies.last


@dataclass(slots=True)
class PartitionTraffic:
    """Records, bytes and latencies of one target partition since the start."""

    records: int = 0
    value_bytes: int = 0
    carried: SampledStat = field(default_factory=SampledStat)  # count: records; total: bytes
    ages: LatencyStat = field(default_factory=LatencyStat)
    latencies: LatencyStat = field(default_factory=LatencyStat)


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """A source group's committed offset in one incarnation of a partition, as last seen."""

    group: str
    partition: TopicPartition
    topic_id: str
    committed: int


class MetricsState(Listener):
    """State of the *flows* of a run. The loops' threads call its methods.

    *address* is the URL of the metrics server, or None while it is not served. *loops* has the
    state of each loop by its role. Only the loop's thread replaces it, as a whole, and any thread
    may read it: no lock is needed.
    """

    def __init__(self, flows: Sequence[FlowConfig], timings: Timings | None = None) -> None:
        self.flows = tuple(flows)
        self.timings = timings or Timings()
        self.address: str | None = None
        sources = dict.fromkeys(config.flow.source for config in flows)
        now_s = time.monotonic()
        loops = [
            *(LoopState("stage", alias, "", now_s, now_s) for alias in sources),
            *(LoopState("replay", c.flow.source, c.flow.target, now_s, now_s) for c in flows),
        ]
        self.loops = {loop.name: loop for loop in loops}
        self.lock = Lock()
        self.staged_records = dict.fromkeys(sources, 0)
        self.staged_bytes = dict.fromkeys(sources, 0)
        self.watermarks: dict[str, Mapping[TopicPartition, Watermarks]] = {}
        self.partition_lags: dict[Flow, Sequence[PartitionLag]] = {}
        self.traffic = defaultdict[tuple[Flow, TopicPartition], PartitionTraffic](PartitionTraffic)
        self.latencies = defaultdict[tuple[Flow, str, TopicPartition], LatencyStat](LatencyStat)
        self.commits: dict[Flow, Sequence[GroupCommit]] = {}

    def tick_started(self, role: str) -> None:
        self._update(role, began_at_s=time.monotonic())

    def tick_succeeded(
        self, role: str, errors: Mapping[TopicPartition, PartitionError], *, is_paused: bool = False
    ) -> None:
        self._tick_ended(
            role,
            state="paused" if is_paused else "running",
            failing_since_s=None,
            partition_errors=Counter(error.kind for error in errors.values()),
        )

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        before = self.loops[role]
        self._tick_ended(
            role,
            state="failed",
            failures=before.failures + 1,
            failing_since_s=before.failing_since_s or time.monotonic(),
            error=error,
            error_at_ms=int(time.time() * 1000),
        )

    def lease_refused(self, role: str) -> None:
        self._update(role, state="waiting", failing_since_s=None)

    def _tick_ended(self, role: str, **changes: Any) -> None:  # noqa: ANN401 - fields of LoopState
        before = self.loops[role]
        ticks_s = before.ticks_s + time.monotonic() - before.began_at_s
        self._update(role, ticks=before.ticks + 1, ticks_s=ticks_s, **changes)

    def _update(self, role: str, **changes: Any) -> None:  # noqa: ANN401 - fields of LoopState
        self.loops[role] = replace(self.loops[role], last_sign_at_s=time.monotonic(), **changes)

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
                        ages = spread.ages_at(now_ms)
                        self.traffic[config.flow, partition].ages.add(ages, now_s)

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
                traffic = self.traffic[flow, move.target]
                traffic.records += move.records
                traffic.value_bytes += move.load.value_bytes
                traffic.carried.add(ValueStats(move.records, move.load.value_bytes), now_s)
                traffic.latencies.add(move.load.timestamps.ages_at(now_ms), now_s)

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
        now_s, took = time.monotonic(), ValueStats(1, took_ms, took_ms, took_ms, took_ms)
        with self.lock:
            for group, target in written:
                self.latencies[flow, group, target].add(took, now_s)

    def committed(self, flow: Flow, commits: Sequence[GroupCommit]) -> None:
        """Record the commits of the flow's groups; drop the groups that are gone."""
        groups = {commit.group for commit in commits}
        with self.lock:
            self.commits[flow] = commits
            for key in [k for k in self.latencies if k[0] == flow and k[1] not in groups]:
                del self.latencies[key]


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
    commits = [
        GroupCommit(
            r["group"], TopicPartition(r["topic"], r["partition"]), r["topic_id"], r["committed"]
        )
        for r in flow_commits(context, flow_config)
    ]
    metrics_state.committed(flow_config.flow, commits)
