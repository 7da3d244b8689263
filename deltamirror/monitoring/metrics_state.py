"""What the loops of a run moved and how far they are: told by them tick by tick, read at a scrape.

Nothing here is done per record: a tick tells a few numbers of each partition that moved.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from deltamirror.context import Site
from deltamirror.groups.checkpoints import write_checkpoints
from deltamirror.groups.snapshots import latest_commits
from pipeline.monitoring.sampled_stat import Recent
from schemas.config.config import FlowConfig
from schemas.config.flow import Flow
from schemas.errors import DeltamirrorError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.monitoring.flow_state import LoopState, Standing
from schemas.monitoring.stats import Spread
from schemas.replay.slot_work import Move
from schemas.staging.segment import Segment
from schemas.tables import GROUP_OFFSETS

LOOK_S = 5.0
"""How often a loop tells how far its partitions are, at most: 1,000 topics cost some 10 ms."""


@dataclass(slots=True)
class Passage:
    """What went into one target partition since the start."""

    records: int = 0
    value_bytes: int = 0
    carried: Recent = field(default_factory=Recent)  # of records and bytes: count and total
    ages: Recent = field(default_factory=Recent)
    latencies: Recent = field(default_factory=Recent)
    last_age_ms: float | None = None
    last_latency_ms: float | None = None


@dataclass(slots=True)
class Latency:
    """How long a group's checkpoints took."""

    recent: Recent = field(default_factory=Recent)
    last_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """What a group of the source has committed in an incarnation of a partition, as last seen."""

    group: str
    partition: TopicPartition
    topic_id: str
    committed: int


class Board:
    """What is known of the *flows* of a run. Its methods are called from the loops' threads.

    *address* is where it can be read over HTTP, once it can.
    """

    def __init__(self, flows: Sequence[FlowConfig]) -> None:
        self.flows = tuple(flows)
        self.address: str | None = None
        sources = dict.fromkeys(config.flow.source for config in flows)
        self.stagings = {alias: LoopWatch("stage", alias) for alias in sources}
        self.replays = {
            config.flow: LoopWatch("replay", config.flow.source, config.flow.target)
            for config in flows
        }
        self.lock = Lock()
        self.staged_records = dict.fromkeys(sources, 0)
        self.staged_bytes = dict.fromkeys(sources, 0)
        self.seen: dict[str, Mapping[TopicPartition, Watermarks]] = {}
        self.standings: dict[Flow, Sequence[Standing]] = {}
        self.passages: dict[tuple[Flow, TopicPartition], Passage] = {}
        self.latencies: dict[tuple[Flow, str, TopicPartition], Latency] = {}
        self.commits: dict[Flow, Sequence[GroupCommit]] = {}
        self._told_at: dict[Flow, float] = {}

    def watches(self) -> list[LoopWatch]:
        """Return the watch on every loop."""
        return [*self.stagings.values(), *self.replays.values()]

    def staged(self, alias: str, segments: Sequence[Segment], stamps: Sequence[Spread]) -> None:
        """Count *segments* of source cluster *alias*, each with its records' timestamps."""
        now_s, now_ms = time.monotonic(), int(time.time() * 1000)
        configs = [config for config in self.flows if config.flow.source == alias]
        with self.lock:
            for segment, spread in zip(segments, stamps, strict=True):
                self.staged_records[alias] += segment.count
                self.staged_bytes[alias] += segment.size_bytes
                for config in configs:
                    if spread.count and config.replicates(segment.topic):
                        target = config.remote_topic(segment.topic)
                        partition = TopicPartition(target, segment.partition)
                        self._age(config.flow, partition, spread.until(now_ms), now_s)

    def saw(
        self,
        alias: str,
        seen: Mapping[TopicPartition, Watermarks],
        troubled: Collection[TopicPartition],
    ) -> None:
        """Note what the partitions of *alias* hold; of *troubled* ones what was seen before."""
        former = self.seen.get(alias, {})
        kept = {p: former[p] for p in troubled if p in former}
        self.seen[alias] = {**kept, **seen}

    def replayed(self, flow: Flow, moves: Iterable[Move]) -> None:
        """Count *moves* of *flow*; those that were found by pairing brought no record."""
        now_s, now_ms = time.monotonic(), int(time.time() * 1000)
        with self.lock:
            for move in moves:
                if move.load is None or not move.records:
                    continue
                passage = self._passage(flow, move.target)
                passage.records += move.records
                passage.value_bytes += move.load.value_bytes
                passage.carried.add(Spread(move.records, move.load.value_bytes), now_s)
                latencies = move.load.stamps.until(now_ms)
                if latencies.count:
                    passage.latencies.add(latencies, now_s)
                    passage.last_latency_ms = latencies.last

    def is_due(self, flow: Flow) -> bool:
        """Return whether it is time to tell how far the partitions of *flow* are."""
        return time.monotonic() - self._told_at.get(flow, float("-inf")) >= LOOK_S

    def stands(self, flow: Flow, standings: Sequence[Standing]) -> None:
        """Note how far the partitions of *flow* are; forget those that are gone.

        Gone is what the source does not have any more, as far as this process looks at it, and
        what nothing waits of; not what *standings* do not know yet, being older than what was
        staged meanwhile.
        """
        seen = self.seen.get(flow.source)
        there = [
            s for s in standings if seen is None or s.source.plain in seen or s.replayed < s.staged
        ]
        with self.lock:
            known = {s.target for s in (*self.standings.get(flow, ()), *standings)}
            gone = known - {s.target for s in there}
            self._told_at[flow] = time.monotonic()
            self.standings[flow] = there
            for place in [p for p in self.passages if p[0] == flow and p[1] in gone]:
                del self.passages[place]
            for key in [k for k in self.latencies if k[0] == flow and k[2] in gone]:
                del self.latencies[key]

    def checkpointed(
        self, flow: Flow, written: Iterable[tuple[str, TopicPartition]], took_ms: float
    ) -> None:
        """Note that the checkpoints *written* (group and target partition) took *took_ms*."""
        now_s = time.monotonic()
        with self.lock:
            for group, target in written:
                latency = self.latencies.setdefault((flow, group, target), Latency())
                latency.recent.add(Spread(1, took_ms, took_ms, took_ms, took_ms), now_s)
                latency.last_ms = took_ms

    def committed(self, flow: Flow, commits: Sequence[GroupCommit]) -> None:
        """Note what the groups of the flow's source have committed; forget groups that are gone."""
        groups = {commit.group for commit in commits}
        with self.lock:
            self.commits[flow] = commits
            for key in [k for k in self.latencies if k[0] == flow and k[1] not in groups]:
                del self.latencies[key]

    def _age(self, flow: Flow, target: TopicPartition, ages: Spread, now_s: float) -> None:
        passage = self._passage(flow, target)
        passage.ages.add(ages, now_s)
        passage.last_age_ms = ages.last

    def _passage(self, flow: Flow, target: TopicPartition) -> Passage:
        return self.passages.setdefault((flow, target), Passage())


class LoopWatch:
    """The watch on one loop. Each change replaces `state` in one go: no lock is needed."""

    def __init__(self, loop: str, source: str, target: str = "") -> None:
        now_s = time.monotonic()
        self.state = LoopState(loop, source, target, sign_at_s=now_s, began_at_s=now_s)

    def begins(self) -> None:
        """Note that a tick begins."""
        now_s = time.monotonic()
        self.state = replace(self.state, began_at_s=now_s, sign_at_s=now_s)

    def waits(self) -> None:
        """Note that another process has the lease."""
        now_s = time.monotonic()
        self.state = replace(self.state, state="waiting", failing_since_s=None, sign_at_s=now_s)

    def worked(self, troubles: Collection[DeltamirrorError], *, is_paused: bool = False) -> None:
        """Note that the tick worked, but for *troubles*; *is_paused*: none of it may go on."""
        now_s = time.monotonic()
        self.state = replace(
            self.state,
            state="paused" if is_paused else "running",
            sign_at_s=now_s,
            ticks=self.state.ticks + 1,
            ticks_s=self.state.ticks_s + now_s - self.state.began_at_s,
            failing_since_s=None,
            troubles=Counter(error.kind for error in troubles),
        )

    def failed(self, error: DeltamirrorError) -> None:
        """Note that the tick failed with *error*."""
        now_s, before = time.monotonic(), self.state.failing_since_s
        self.state = replace(
            self.state,
            state="failed",
            sign_at_s=now_s,
            ticks=self.state.ticks + 1,
            ticks_s=self.state.ticks_s + now_s - self.state.began_at_s,
            failures=self.state.failures + 1,
            failing_since_s=now_s if before is None else before,
            error=error,
            error_at_ms=int(time.time() * 1000),
        )


def checkpoint(site: Site, flow_config: FlowConfig, board: Board) -> None:
    """Write the checkpoints of the flow that changed, and tell *board* how long that took.

    The time goes from the beginning of the round to the answer to all of it, as MirrorMaker 2's
    checkpoint-latency-ms does; where none are emitted there is none.
    """
    began_s = time.monotonic()
    rows = write_checkpoints(site, flow_config)
    took_ms = (time.monotonic() - began_s) * 1000
    if flow_config.emit_checkpoints_interval_s is not None:
        written = [(r["group"], TopicPartition(r["target_topic"], r["partition"])) for r in rows]
        board.checkpointed(flow_config.flow, written, took_ms)
    tell_groups(site, flow_config, board)


def tell_groups(site: Site, flow_config: FlowConfig, board: Board) -> None:
    """Tell *board* what the flow's groups have committed, as they were last seen."""
    table = site.lake.of_cluster(flow_config.flow.source, GROUP_OFFSETS)
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
    board.committed(flow_config.flow, commits)
