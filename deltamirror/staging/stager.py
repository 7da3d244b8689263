"""Stage one source cluster: plan ranges, read and write them, commit, seal."""

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
from pipeline.staging.plan import assign_ranges, next_tick_bytes, plan_ranges
from pipeline.staging.stage import StageResult, StageTask
from resources.coordination.lease import Lease
from resources.spark.session import SparkWorkers
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.errors.source import RangeUnfinishedError, TopicDeletedError, TopicRecreatedError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.monitoring.stats import ValueStats
from schemas.staging.frontier import Frontier, PartitionSnapshot, base_id
from schemas.staging.read_range import OffsetRange
from schemas.staging.segment import Segment

log = logging.getLogger(__name__)

REQUESTS_APP_ID = "orders"
"""App id of the txn version of `records`: the number of the last operator request applied."""


@dataclass(frozen=True)
class StageTick:
    """The committed *segments*, the *timestamps* of their records, and the *watermarks* read."""

    segments: tuple[Segment, ...] = ()
    timestamps: tuple[ValueStats, ...] = ()
    watermarks: Mapping[TopicPartition, Watermarks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _BlockedPartition:
    """A partition that is not staged until a monotonic time in s, or until its topic id changes."""

    error: PartitionError
    until: float
    topic_id: str


class SourceStager:
    """Stage source cluster *alias*. Its lease excludes other stagers of the cluster.

    Call `open` first, then `tick` repeatedly, then `close`. Not thread-safe.
    """

    def __init__(self, context: MirrorContext, alias: str, workers: SparkWorkers) -> None:
        self._context, self.alias = context, alias
        self.worker_pool = workers.worker_pool(StageWorker)
        self._control = ControlTable(context.lake.control)
        self.role = f"stage {alias}"
        self.lease = Lease(context.lake.root, self.role)
        self._source_topics = SourceTopics(context, alias)
        self._committer = Committer(context, alias, self._source_topics)
        self._budget = next_tick_bytes(0, context.config.max_batch_bytes, is_behind=False)
        self._bytes_per_offset = 1_000.0  # of the last tick
        self.cpu_s = 0.0  # that ticks have taken, here and in the workers
        self._blocked: dict[TopicPartition, _BlockedPartition] = {}
        self.partition_errors: dict[TopicPartition, PartitionError] = {}
        self.committed: tuple[Sequence[Segment], Sequence[ValueStats]] = (), ()

    def open(self) -> None:
        """Acquire the lease and load the frontiers. Raises LeaseHeldError, LakeError."""
        self._context.lake.ensure_exists()
        self.lease.acquire()
        try:
            self._committer.load()
        except DeltamirrorError:
            self.lease.release()
            raise

    def close(self) -> None:
        """Close the worker pool, seal what was committed, and release the lease."""
        self.worker_pool.close()
        try:
            if self.lease.is_held:
                self._committer.seal()
        except DeltamirrorError as error:  # the next process that stages seals it
            log.warning("%s: the last segments are not in their table yet: %s", self.role, error)
        finally:
            self.lease.release()

    def frontier(self, partition: TopicPartition) -> int | None:
        """Return the next offset to stage of *partition*; None if nothing of it is staged yet."""
        known = self._committer.frontiers.get(partition)
        return known.next_offset if known else None

    def tick(self, only: Collection[str] | None = None) -> StageTick:
        """Stage at most one batch; *only* of these topics. Raises UnreachableError.

        Errors of single partitions are in `partition_errors` afterwards. What a failed tick has
        committed is in `committed`.
        """
        begun = time.thread_time()
        try:
            return self._tick(only)
        finally:
            self.cpu_s += time.thread_time() - begun

    def _tick(self, only: Collection[str] | None) -> StageTick:
        self._committer.seal_if_due()
        seen, lost = self._source_topics.snapshot_partitions(only, self._committer.frontiers)
        self._apply_requests(seen, only)
        blocked = self._still_blocked(seen)
        free = {p: s for p, s in seen.items() if p not in blocked}
        config, frontiers = self._context.config, self._committer.frontiers
        from_latest = config.clusters[self.alias].auto_offset_reset == "latest"
        pending_frontiers = self._source_topics.pending_frontiers(frontiers)
        planned = plan_ranges(
            free, pending_frontiers, config.max_batch_records, from_latest=from_latest
        )
        deleted_partitions = self._source_topics.deleted_partitions(pending_frontiers, only)
        plan_errors = {**planned.partition_errors, **deleted_partitions}
        self._record_ends(pending_frontiers, plan_errors)
        self.partition_errors = {**lost, **blocked, **plan_errors}
        segments, stamps = self._stage(planned.ranges) if planned.ranges else ([], ())
        ends = {r: self.frontier(r.partition.topic_partition) for r in planned.ranges}
        is_behind = any(end is None or end < r.watermarks.stable for r, end in ends.items())
        self._budget = next_tick_bytes(self._budget, config.max_batch_bytes, is_behind=is_behind)
        # A new process finds some errors, such as records that expired since the plan, only by
        # reading. Requests to accept these gaps can be applied only now.
        self._apply_requests(seen, only, is_last=True)
        return StageTick(tuple(segments), stamps, {p: s.watermarks for p, s in seen.items()})

    def _record_ends(
        self,
        pending_frontiers: Mapping[TopicPartition, Frontier],
        partition_errors: Mapping[TopicPartition, PartitionError],
    ) -> None:
        """Commit how far re-created and deleted topics reached, for a new process to know it."""
        now_ms, sequence = int(time.time() * 1000), self._committer.next_sequence
        segments = [
            frontier_segment(pending_frontiers[p], now_ms, sequence)
            for p, error in partition_errors.items()
            if isinstance(error, TopicRecreatedError | TopicDeletedError)
            and pending_frontiers[p] != self._committer.frontiers.get(p)
        ]
        if segments:
            self._committer.commit_empty(segments, {})

    def _still_blocked(
        self, seen: Mapping[TopicPartition, PartitionSnapshot]
    ) -> dict[TopicPartition, PartitionError]:
        """Unblock partitions that are due or were re-created; return the errors of the others."""
        now = time.monotonic()
        self._blocked = {
            p: blocked
            for p, blocked in self._blocked.items()
            if blocked.until > now and (p not in seen or seen[p].topic_id == blocked.topic_id)
        }
        return {p: blocked.error for p, blocked in self._blocked.items()}

    def _stage(self, ranges: Sequence[OffsetRange]) -> tuple[list[Segment], tuple[ValueStats, ...]]:
        """Read and write *ranges* in Spark tasks, then commit them, as `Committer.commit` does."""
        config = self._context.config
        assigned = assign_ranges(ranges, config.tasks_max, self._bytes_per_offset)
        sequence, path = self._committer.next_sequence, self._committer.records.path
        consumer = config.clusters[self.alias].consumer
        share = self._budget // len(assigned)
        jobs = {
            number: StageJob(StageTask(tuple(members), sequence, share), consumer, path)
            for number, members in assigned.items()
        }
        answers = self.worker_pool.run(jobs)
        staged = [a for a in answers if isinstance(a, StageResult)]
        failures = [a for a in answers if isinstance(a, DeltamirrorError)]
        for each in staged:
            self.cpu_s += each.cpu_s
            for planned, error in each.errors:
                self._block(planned.partition, error)
        self.committed = committed = self._committer.commit(staged)
        segments, _ = committed
        if offsets := sum(s.end - s.start for s in segments):
            self._bytes_per_offset = sum(s.size_bytes for s in segments) / offsets
        if failures:
            raise failures[0]
        return committed

    def _block(self, source: SourcePartition, error: PartitionError) -> None:
        """Stop staging the partition for a while, or until an operator accepts the gap."""
        partition = source.topic_partition
        # If nothing of a partition is staged, expired records leave no gap: the next attempt
        # begins at the log start offset of that time.
        has_begun = partition in self._committer.frontiers
        is_transient = isinstance(error, RangeUnfinishedError) or not has_begun
        retry_s = self._context.timings.partition_retry_s if is_transient else float("inf")
        until = time.monotonic() + retry_s
        self._blocked[partition] = _BlockedPartition(error, until, base_id(source.topic_id))
        self.partition_errors[partition] = error
        self._source_topics.refresh_topics()
        log.warning("%s %s", self.role, error)

    def _apply_requests(
        self,
        seen: Mapping[TopicPartition, PartitionSnapshot],
        only: Collection[str] | None,
        *,
        is_last: bool = False,
    ) -> None:
        """Apply the accept-gap requests that were not applied yet, of topics in *only*."""
        # A request is finished when it met a gap; with *is_last* also if it met none.
        done = self._committer.records.txn_version(REQUESTS_APP_ID) or 0
        new = (
            o
            for o in self._control.requests_for(self.alias)
            if o.order == ACCEPT_GAP and o.number > done
        )
        requests = list(takewhile(lambda o: only is None or o.topic in only, new))
        if not requests:
            return
        pending_frontiers = self._source_topics.pending_frontiers(self._committer.frontiers)
        planned = {} if is_last else plan_ranges(seen, pending_frontiers, 1).partition_errors
        partition_errors = {
            **(self.partition_errors if is_last else planned),
            **self._still_blocked(seen),
            **self._source_topics.deleted_partitions(pending_frontiers, only),
        }
        now_ms, sequence = int(time.time() * 1000), self._committer.next_sequence
        gaps = {
            p: accept_gap(error, pending_frontiers[p], seen.get(p), now_ms, sequence)
            for p, error in partition_errors.items()
            if p in pending_frontiers and any(request.applies_to(p) for request in requests)
        }
        segments = [segment for gap in gaps.values() for segment in gap]
        if not segments and not is_last:
            return
        self._committer.commit_empty(segments, {REQUESTS_APP_ID: requests[-1].number})
        for partition in (p for p, gap in gaps.items() if gap):
            self._blocked.pop(partition, None)
            self.partition_errors.pop(partition, None)
        for s in segments:
            log.warning("%s %s [%d, %d) %s", self.role, s.source, s.start, s.end, s.gap_cause)
