"""Replay one flow: remote topics, work by slots, transactions, the offset map."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from deltamirror.context import MirrorContext
from deltamirror.control import RESTART, RESUME, ControlTable, is_paused
from deltamirror.replay.offset_map import OffsetMap, complete_from
from deltamirror.replay.work_planner import WorkPlanner
from deltamirror.staging.segment_index import SegmentIndex, last_only
from deltamirror.topics.remote_topics import RemoteTopics
from deltamirror.worker_tasks import ReplayWorker, assign_slots
from resources.coordination.lease import Lease
from resources.spark.session import SparkWorkers
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.errors.lake import StalePlanError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.monitoring.flow_state import PartitionLag
from schemas.replay.slot_work import CommittedBatch, PartitionWork, Progress, SlotReplayResult

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReplayTick:
    """The batches that a tick committed. *is_idle* means that there was nothing to send."""

    moves: tuple[CommittedBatch, ...] = ()
    is_idle: bool = False


class FlowReplayer:
    """Replay one flow. Its lease excludes other replayers of the flow. Not thread-safe.

    Call `open` first, then `tick` repeatedly, then `close`.
    """

    def __init__(self, context: MirrorContext, flow: FlowConfig, workers: SparkWorkers) -> None:
        self._context, self.config = context, flow
        self.worker_pool = workers.worker_pool(ReplayWorker)
        self.flow = flow.flow
        self._records = context.lake.records(self.flow.source)
        self._control = ControlTable(context.lake.control)
        self._map = OffsetMap(context.lake.offset_map(self.flow), uuid4().hex)
        self._remote_topics = RemoteTopics(context, flow)
        index = SegmentIndex(context.lake.segments(self.flow.source), self._reached)
        self._planner = WorkPlanner(
            context.config, flow, index, self._records, self._map, self._remote_topics
        )
        self.role = f"replay {self.flow.name}"
        self.lease = Lease(context.lake.root, self.role)
        self._excluded: dict[TopicPartition, PartitionError] = {}
        self._excluded_at: dict[TopicPartition, float] = {}
        self._last_resume_number = 0
        self.paused: set[TopicPartition] = set()
        self.committed: tuple[CommittedBatch, ...] = ()

    @property
    def segment_index(self) -> SegmentIndex:
        """Return the index of the source's staged segments."""
        return self._planner.segment_index

    @property
    def partition_errors(self) -> dict[TopicPartition, PartitionError]:
        """Return the error of each excluded partition."""
        errors = self._remote_topics.partition_errors(self.segment_index.partitions())
        return {**errors, **self._excluded}

    @property
    def is_paused(self) -> bool:
        """Return whether an operator paused every partition of the flow."""
        return bool(self.paused) and all(p in self.paused for p in self._planner.partitions())

    def open(self) -> None:
        """Acquire the lease and read where the map ends. Raises LeaseHeldError, LakeError."""
        self._context.lake.ensure_exists()
        self.lease.acquire()
        try:
            self.load_ends()
        except DeltamirrorError:
            self.lease.release()
            raise

    def load_ends(self) -> None:
        """Read where the map ends, and forget the progress read from the target."""
        if self._map.is_due(0.0):
            with suppress(StalePlanError):  # the table has what another process wrote
                self._map.flush()
        self._records.refresh()
        self._map.load_ends()
        self._planner.at.clear()

    def close(self) -> None:
        """Close the worker pool, append what the map lacks, and release the lease."""
        self.worker_pool.close()
        self.flush_map()
        self.lease.release()

    def _reached(self, source: SourcePartition) -> int | None:
        """Return the offset up to which the map has the records of *source*."""
        if not self.config.replicates(source.topic):
            return last_only(source)
        return self._map.reached(self._planner.target(source.topic_partition), source.topic_id)

    def flush_map(self) -> None:
        """Append to the offset map what it lacks; log a warning if that fails."""
        try:
            if self.lease.is_held and self._map.is_due(0.0):
                self._map.flush()
        except DeltamirrorError as error:  # the next process that replays pairs the records
            log.warning("%s: the offset map lacks the last records: %s", self.role, error)

    def progress(self, partition: TopicPartition) -> Progress | None:
        """Return the progress of source *partition* that is staged and mapped; None if unknown."""
        return self._planner.progress(partition)

    def partition_lags(self) -> list[PartitionLag]:
        """Return each partition's lag from what this loop has read. Sends no request."""
        return [
            self._planner.partition_lag(p, is_paused=p in self.paused)
            for p in self._planner.partitions()
        ]

    def tick(self, only: Collection[str] | None = None) -> ReplayTick:
        """Replay a few transactions of each slot; *only* of these topics. Raises UnreachableError.

        Excluded partitions are in `partition_errors` afterwards, paused ones in `paused`. What a
        failed tick has committed is in `committed`.
        """
        if self._map.is_due(self._context.timings.map_interval_s):
            self._map.flush()
        self.segment_index.refresh()
        self._apply_requests()
        self._retry_due()
        self._remote_topics.refresh(self.segment_index.partitions())
        left_out = self._excluded.keys() | self.paused
        partitions = [
            p
            for p in self._planner.partitions()
            if (only is None or p.topic in only) and p not in left_out
        ]
        self._load_progress(partitions)
        works = self._works(partitions)
        if not works:
            return ReplayTick(is_idle=True)
        config = self._context.config
        jobs = self._planner.slot_works(works)
        answers = self.worker_pool.run(assign_slots(jobs, self.config, config, self._records.path))
        return ReplayTick(self._record_answers(answers))

    def _apply_requests(self) -> None:
        """Update the paused partitions. A resume or restart includes excluded partitions again."""
        requests = self._control.requests_for(self.flow.name)
        self.paused = {p for p in self.segment_index.partitions() if is_paused(requests, p)}
        resumes = [o for o in requests if o.order in (RESUME, RESTART)]
        if resumes and resumes[-1].number > self._last_resume_number:
            self._last_resume_number = resumes[-1].number
            self._excluded.clear()
            self._remote_topics.reset()
            if any(request.order == RESTART for request in resumes):
                self.segment_index.read_all()

    def _retry_due(self) -> None:
        """Include partitions again whose retry interval is over."""
        interval_s, now = self.config.refresh_topics_interval_s or float("inf"), time.monotonic()
        transient_s = min(interval_s, self._context.timings.transient_retry_s)
        for partition, error in list(self._excluded.items()):
            retry_s = transient_s if error.is_transient else interval_s
            if now - self._excluded_at[partition] > retry_s:
                del self._excluded[partition]

    def _load_progress(self, partitions: Sequence[TopicPartition]) -> None:
        """Read unknown progress of *partitions*, only for planning: the task reads it again."""
        unknown = {self._planner.target(p): p for p in partitions if p not in self._planner.at}
        unknown = {t: p for t, p in unknown.items() if self._remote_topics.topic_id(p) is not None}
        if not unknown:
            return
        cluster = self._context.cluster(self.flow.target)
        # Offsets that an open transaction of a dead process keeps unstable are not waited for:
        # the task's fencing ends that transaction.
        found = cluster.committed_offsets(
            self.flow.progress_group, list(unknown), require_stable=False
        )
        for target, committed in found.items():
            if committed is not None and (progress := Progress.read(*committed)) is not None:
                self._planner.at[unknown[target]] = progress

    def _works(self, partitions: Sequence[TopicPartition]) -> list[PartitionWork]:
        """Return the work of *partitions*; exclude those that have an error."""
        works = []
        for partition in partitions:
            try:
                works.append(self._planner.work(partition, self._control))
            except PartitionError as error:
                self._exclude(partition, error)
        return [work for work in works if work is not None]

    def _exclude(self, partition: TopicPartition, error: PartitionError) -> None:
        self._excluded[partition], self._excluded_at[partition] = error, time.monotonic()
        log.warning("%s %s", self.role, error)

    def _record_answers(self, answers: Sequence[SlotReplayResult]) -> tuple[CommittedBatch, ...]:
        """Update the offset map, exclude failed partitions, then raise a slot's failure."""
        moves = tuple(move for answer in answers for move in answer.batches)
        self._map.add(moves)
        self.committed = moves
        for move in moves:
            self._planner.at[move.partition] = move.after
            if move.rebuilt:
                self._log_rebuilt_map(move)
        for answer in answers:
            self._planner.adjust_batch_size(answer)
            for partition, error in answer.errors:
                self._exclude(partition, error)
                self._planner.at.pop(partition, None)
        failures = [answer.failure for answer in answers if answer.failure is not None]
        if failures:
            self.load_ends()
            raise failures[0]
        return moves

    def _log_rebuilt_map(self, move: CommittedBatch) -> None:
        """Log from where a map that was rebuilt by pairing is complete, if runs are missing."""
        start = complete_from(move, self._records)
        if move.before is None:
            log.info(
                "%s: there was no offset map of %s: the target's log holds %d staged records, up "
                "to upstream offset %d; replay continues after them",
                *(self.role, move.target, move.records, move.after.next_offset),
            )
        if start is not None:
            log.warning(
                "%s: the offset map of %s was rebuilt from upstream offset %d on: some earlier "
                "records are no longer on the target or in the lake",
                *(self.role, move.target, start),
            )
