"""One source cluster's staging: plan, read and write, commit, seal (DESIGN 2.1)."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from deltamirror.context import MirrorContext
from deltamirror.control import ACCEPT_GAP, ControlTable
from deltamirror.staging.committer import Committer
from deltamirror.staging.source_topics import SourceTopics
from deltamirror.worker_tasks import StageJob, StageWorker
from pipeline.staging.gaps import accept_gap, frontier_segment
from pipeline.staging.plan import bundle_ranges, next_tick_bytes, plan_ranges
from pipeline.staging.stage import SlotStageResult, StageTask
from resources.coordination.lease import Lease
from resources.spark.session import SparkWorkers
from schemas.errors import (
    DeltamirrorError,
    PartitionError,
    RangeUnfinishedError,
    TopicDeletedError,
    TopicRecreatedError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.monitoring.stats import ValueStats
from schemas.staging.frontier import Frontier, PartitionSnapshot, base_id
from schemas.staging.read_range import OffsetRange
from schemas.staging.segment import Segment

log = logging.getLogger(__name__)

REQUESTS_APP_ID = "orders"
"""The mark of `records`: the number of the last order that was carried out."""


@dataclass(frozen=True)
class StageTick:
    """What a tick did: the segments it committed, and what was seen of the source.

    *timestamps* are those of each segment's records, in the order of *segments*.
    """

    segments: tuple[Segment, ...] = ()
    timestamps: tuple[ValueStats, ...] = ()
    watermarks: Mapping[TopicPartition, Watermarks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _BlockedPartition:
    """A partition that is left alone until a time (monotonic, in s), or is another topic's."""

    error: PartitionError
    until: float
    topic_id: str


class SourceStager:
    """The staging of source cluster *alias*: one of these at a time, by its lease.

    `open` first; then `tick` until satisfied. Not thread-safe.
    """

    def __init__(self, context: MirrorContext, alias: str, workers: SparkWorkers) -> None:
        self._context, self.alias = context, alias
        self.worker_pool = workers.worker_pool(StageWorker)
        self._control = ControlTable(context.lake.control)
        self.lease = Lease(context.lake.root, f"stage {alias}")
        self._source_topics = SourceTopics(context, alias)
        self._committer = Committer(context, alias, self._source_topics)
        self._budget = next_tick_bytes(0, context.config.max_batch_bytes, is_behind=False)
        self._blocked: dict[TopicPartition, _BlockedPartition] = {}
        self.partition_errors: dict[TopicPartition, PartitionError] = {}

    @property
    def role(self) -> str:
        """Return what this is called in bulletins."""
        return self.lease.role

    def open(self) -> None:
        """Take the lease and learn the frontiers. Raises LeaseHeldError, LakeError."""
        self._context.lake.ensure_exists()
        self.lease.acquire()
        try:
            self._committer.learn()
        except DeltamirrorError:
            self.lease.release()  # who holds it stages, from frontiers that are known
            raise

    def close(self) -> None:
        """Let the workers go, and give the lease back."""
        self.worker_pool.close()
        self.lease.release()

    def frontier(self, partition: TopicPartition) -> int | None:
        """Return the next offset to stage of *partition*; None: nothing of it is staged yet."""
        known = self._committer.frontiers.get(partition)
        return known.next_offset if known else None

    def tick(self, only: Collection[str] | None = None) -> StageTick:
        """Stage what there is, one batch at most; *only* these topics if given.

        Raises UnreachableError: the source does not answer. Troubles of single partitions are in
        `partition_errors` afterwards.
        """
        seen, lost = self._source_topics.snapshot_partitions(only, self._committer.frontiers)
        self._apply_requests(seen, only)
        held = self._still_blocked(seen)
        free = {p: s for p, s in seen.items() if p not in held}
        pending_frontiers = self._pending_frontiers()
        planned = plan_ranges(
            free,
            pending_frontiers,
            self._context.config.max_batch_records,
            from_latest=self._from_latest,
        )
        deleted_partitions = self._source_topics.deleted_partitions(pending_frontiers, only)
        self._record_ends(pending_frontiers, {**planned.partition_errors, **deleted_partitions})
        self.partition_errors = {**lost, **held, **planned.partition_errors, **deleted_partitions}
        segments, stamps = self._stage(planned.ranges) if planned.ranges else ([], ())
        is_behind = any(map(self._is_behind, planned.ranges))
        most = self._context.config.max_batch_bytes
        self._budget = next_tick_bytes(self._budget, most, is_behind=is_behind)
        # A process that has just begun learns by reading what an order may have been given for.
        self._apply_requests(seen, only, is_last=True)
        return StageTick(tuple(segments), stamps, {p: s.watermarks for p, s in seen.items()})

    def refresh_topics(self) -> None:
        """Look for new topics and partitions at the next tick."""
        self._source_topics.refresh_topics()

    @property
    def _from_latest(self) -> bool:
        return self._context.config.clusters[self.alias].auto_offset_reset == "latest"

    def _pending_frontiers(self) -> dict[TopicPartition, Frontier]:
        return self._source_topics.pending_frontiers(
            self._committer.frontiers, from_latest=self._from_latest
        )

    def _record_ends(
        self,
        pending_frontiers: Mapping[TopicPartition, Frontier],
        partition_errors: Mapping[TopicPartition, PartitionError],
    ) -> None:
        """Keep on record how far former lives were seen to reach, or a new process forgets it."""
        now_ms, sequence = int(time.time() * 1000), self._committer.next_sequence
        segments = [
            frontier_segment(pending_frontiers[p], now_ms, sequence)
            for p, error in partition_errors.items()
            if isinstance(error, TopicRecreatedError | TopicDeletedError)
            and pending_frontiers[p] != self._committer.frontiers.get(p)
        ]
        if segments:
            self._committer.settle(segments, {})

    def _still_blocked(
        self, seen: Mapping[TopicPartition, PartitionSnapshot]
    ) -> dict[TopicPartition, PartitionError]:
        """Return what still stands in the way: not for longer than it is the same topic."""
        now = time.monotonic()
        self._blocked = {
            p: held
            for p, held in self._blocked.items()
            if held.until > now and (p not in seen or seen[p].topic_id == held.topic_id)
        }
        return {p: held.error for p, held in self._blocked.items()}

    def _stage(self, ranges: Sequence[OffsetRange]) -> tuple[list[Segment], tuple[ValueStats, ...]]:
        """Read and write *ranges* in Spark tasks, commit and seal; return what was committed.

        With each segment's timestamps.
        """
        config = self._context.config
        bundles = bundle_ranges(ranges, config.tasks_max)
        sequence = self._committer.next_sequence
        consumer = config.clusters[self.alias].consumer
        share = self._budget // len(bundles)
        jobs = [
            StageJob(StageTask(tuple(b), sequence, share), consumer, self._committer.records.path)
            for b in bundles
        ]
        answers = self.worker_pool.run(dict(enumerate(jobs)))
        staged = [a for a in answers if isinstance(a, SlotStageResult)]
        failures = [a for a in answers if isinstance(a, DeltamirrorError)]
        for slot in staged:
            for planned, error in slot.errors:
                self._block(planned.partition, error)
        committed = self._committer.commit(staged)
        if failures:
            raise failures[0]
        return committed

    def _is_behind(self, planned: OffsetRange) -> bool:
        """Return whether the source held more of the partition than is staged of it now."""
        staged = self.frontier(planned.partition.topic_partition)
        return staged is None or staged < planned.watermarks.stable

    def _block(self, source: SourcePartition, error: PartitionError) -> None:
        """Leave the partition alone: for a while, or until an operator accepts the gap."""
        partition = source.topic_partition
        # A partition that has not begun has no gap: it begins where the log does by then.
        has_begun = partition in self._committer.frontiers
        passing = isinstance(error, RangeUnfinishedError) or not has_begun
        until = (
            time.monotonic() + self._context.timings.partition_retry_s if passing else float("inf")
        )
        self._blocked[partition] = _BlockedPartition(error, until, base_id(source.topic_id))
        self.partition_errors[partition] = error
        self.refresh_topics()
        log.warning("%s %s", self.role, error)

    def _apply_requests(
        self,
        seen: Mapping[TopicPartition, PartitionSnapshot],
        only: Collection[str] | None,
        *,
        is_last: bool = False,
    ) -> None:
        """Accept the gaps that operators accepted since the last order carried out.

        Orders are done with once they met a gap or, where they meet none, when *is_last*. Those
        for other topics than *only* wait for a tick that looks at them.
        """
        done = self._committer.records.txn_version(REQUESTS_APP_ID) or 0
        new = (
            o
            for o in self._control.requests_for(self.alias)
            if o.order == ACCEPT_GAP and o.number > done
        )
        requests = list(takewhile(lambda o: only is None or o.topic in only, new))
        if not requests:
            return
        pending_frontiers = self._pending_frontiers()
        found = (
            self.partition_errors
            if is_last
            else plan_ranges(seen, pending_frontiers, 1).partition_errors
        )
        partition_errors = {
            **found,
            **self._still_blocked(seen),
            **self._source_topics.deleted_partitions(pending_frontiers, only),
        }
        now_ms, sequence = int(time.time() * 1000), self._committer.next_sequence
        gaps = {
            p: accept_gap(error, pending_frontiers[p], seen.get(p), now_ms, sequence)
            for p, error in partition_errors.items()
            if p in pending_frontiers and any(order.applies_to(p) for order in requests)
        }
        segments = [segment for gap in gaps.values() for segment in gap]
        if not segments and not is_last:
            return
        self._committer.settle(segments, {REQUESTS_APP_ID: requests[-1].number})
        for partition in (p for p, gap in gaps.items() if gap):
            self._blocked.pop(partition, None)
            self.partition_errors.pop(partition, None)
        for s in segments:
            log.warning("%s %s [%d, %d) %s", self.role, s.source, s.start, s.end, s.gap_cause)
