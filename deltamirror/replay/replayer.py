"""One flow's replay: remote topics, work by slots, transactions, the offset map (DESIGN 2.2)."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import uuid4

from deltamirror.context import MirrorContext
from deltamirror.control import RESTART, RESUME, ControlTable, is_paused
from deltamirror.replay.offset_map import OffsetMap, complete_from
from deltamirror.replay.work_planner import WorkPlanner
from deltamirror.staging.segment_index import SegmentIndex
from deltamirror.topics.remote_topics import RemoteTopics
from deltamirror.worker_tasks import ReplayWorker, assign_slots
from resources.coordination.lease import Lease
from resources.spark.session import SparkWorkers
from schemas.config.config import FlowConfig
from schemas.errors import (
    DeltamirrorError,
    PartitionError,
)
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.flow_state import PartitionLag
from schemas.replay.slot_work import CommittedBatch, PartitionWork, Progress, SlotReplayResult

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReplayTick:
    """What a tick did; *is_idle*: there was nothing to send."""

    moves: tuple[CommittedBatch, ...] = ()
    is_idle: bool = False


class FlowReplayer:
    """The replay of one flow: one of these at a time, by its lease. Not thread-safe.

    `open` first; then `tick` until satisfied.
    """

    def __init__(self, context: MirrorContext, flow: FlowConfig, workers: SparkWorkers) -> None:
        self._context, self.config = context, flow
        self.worker_pool = workers.worker_pool(ReplayWorker)
        self.flow = flow.flow
        self._records = context.lake.records(self.flow.source)
        self._control = ControlTable(context.lake.control)
        self._map = OffsetMap(context.lake.offset_map(self.flow), uuid4().hex)
        self._remote_topics = RemoteTopics(context, flow)
        self._planner = WorkPlanner(
            context.config,
            flow,
            SegmentIndex(context.lake.segments(self.flow.source)),
            self._records,
            self._map,
            self._remote_topics,
        )
        self.lease = Lease(context.lake.root, f"replay {self.flow.name}")
        self._excluded: dict[TopicPartition, PartitionError] = {}
        self._excluded_at: dict[TopicPartition, float] = {}
        self._last_resume_number = 0
        self.paused: set[TopicPartition] = set()

    @property
    def segment_index(self) -> SegmentIndex:
        """Return the index of what is staged of the source."""
        return self._planner.segment_index

    @property
    def role(self) -> str:
        """Return what this is called in bulletins."""
        return self.lease.role

    @property
    def partition_errors(self) -> dict[TopicPartition, PartitionError]:
        """Return the partitions that are left out, with why."""
        return {
            **self._remote_topics.partition_errors(self.segment_index.partitions()),
            **self._excluded,
        }

    @property
    def is_paused(self) -> bool:
        """Return whether an operator paused every partition of the flow."""
        return bool(self.paused) and all(p in self.paused for p in self._planner.partitions())

    def open(self) -> None:
        """Take the lease and learn where the map ends. Raises LeaseHeldError, LakeError."""
        self._context.lake.ensure_exists()
        self.lease.acquire()
        try:
            self.load_ends()
        except DeltamirrorError:
            self.lease.release()  # who holds it knows where the map ends
            raise

    def load_ends(self) -> None:
        """Forget what is thought of the target, and read the map's ends."""
        self._records.refresh()
        self._map.load_ends()
        self._planner.at.clear()

    def close(self) -> None:
        """Let the workers go, and give the lease back."""
        self.worker_pool.close()
        self.lease.release()

    def progress(self, partition: TopicPartition) -> Progress | None:
        """Return where source *partition* is on the target, as far as it is staged and mapped."""
        return self._planner.progress(partition)

    def partition_lags(self) -> list[PartitionLag]:
        """Return how far each partition is, as far as this loop knows: no cluster is asked."""
        return [
            self._planner.standing(p, is_paused=p in self.paused)
            for p in self._planner.partitions()
        ]

    def tick(self, only: Collection[str] | None = None) -> ReplayTick:
        """Replay what is staged, a few chunks a slot at most; *only* these topics if given.

        Raises UnreachableError and other errors of the whole flow. Partitions left out are in
        `partition_errors`, paused ones in `paused`.
        """
        self.segment_index.refresh()
        self._apply_requests()
        self._retry_due()
        self._remote_topics.refresh(self.segment_index.partitions())
        partitions = [
            p
            for p in self._planner.partitions()
            if (only is None or p.topic in only)
            and p not in self._excluded
            and p not in self.paused
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
        """See who is paused; a resume takes everything back that was left out."""
        requests = self._control.requests_for(self.flow.name)
        self.paused = {p for p in self.segment_index.partitions() if is_paused(requests, p)}
        resumes = [o for o in requests if o.order in (RESUME, RESTART)]
        if resumes and resumes[-1].number > self._last_resume_number:
            self._last_resume_number = resumes[-1].number
            self._excluded.clear()
            self._remote_topics.reset()
            if any(order.order == RESTART for order in resumes):
                self._planner.segment_index = SegmentIndex(
                    self._context.lake.segments(self.flow.source)
                )
                self.segment_index.refresh()

    def _retry_due(self) -> None:
        """Try partitions again that were left out one topic refresh ago; what passes, sooner."""
        interval, now = self.config.refresh_topics_interval_s or float("inf"), time.monotonic()
        for partition, error in list(self._excluded.items()):
            bears_s = (
                min(interval, self._context.timings.transient_retry_s)
                if error.is_transient
                else interval
            )
            if now - self._excluded_at[partition] > bears_s:
                del self._excluded[partition]

    def _load_progress(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask the target where partitions are of which that is not known yet.

        Only a hint for planning: the task asks again once it has fenced.
        """
        unknown = {self._planner.target(p): p for p in partitions if p not in self._planner.at}
        unknown = {t: p for t, p in unknown.items() if self._remote_topics.topic_id(p) is not None}
        if not unknown:
            return
        cluster = self._context.cluster(self.flow.target)
        # What a dead process left pending is settled by the task's fencing, not waited for here.
        found = cluster.committed_offsets(
            self.flow.progress_group, list(unknown), require_stable=False
        )
        for target, committed_offsets in found.items():
            progress = Progress.read(*committed_offsets) if committed_offsets is not None else None
            if progress is not None:
                self._planner.at[unknown[target]] = progress

    def _works(self, partitions: Sequence[TopicPartition]) -> list[PartitionWork]:
        """Return what *partitions* have to send; those that cannot go on are left out."""
        works = []
        for partition in partitions:
            try:
                work = self._planner.work(partition, self._control)
            except PartitionError as error:
                self._exclude(partition, error)
                continue
            if work is not None:
                works.append(work)
        return works

    def _exclude(self, partition: TopicPartition, error: PartitionError) -> None:
        self._excluded[partition], self._excluded_at[partition] = error, time.monotonic()
        log.warning("%s %s", self.role, error)

    def _record_answers(self, answers: Sequence[SlotReplayResult]) -> tuple[CommittedBatch, ...]:
        """Write the map of what was committed, note who stopped; raise a slot's failure last."""
        moves = tuple(move for answer in answers for move in answer.batches)
        self._map.write(moves)
        for move in moves:
            self._planner.at[move.partition] = move.after
            if move.rebuilt:
                self._log_rebuilt_map(move)
        for answer in answers:
            self._planner.pace(answer)
            for partition, error in answer.errors:
                self._exclude(partition, error)
                self._planner.at.pop(partition, None)
        failures = [answer.failure for answer in answers if answer.failure is not None]
        if failures:
            self.load_ends()
            raise failures[0]
        return moves

    def _log_rebuilt_map(self, move: CommittedBatch) -> None:
        """Log what a map that was made by pairing means, where more was lost than its last runs."""
        start = complete_from(move, self._records)
        if move.before is None:
            log.info(
                "%s: there was no offset map of %s: the target's log holds %d staged records, up "
                "to upstream offset %d, and replay goes on behind them",
                *(self.role, move.target, move.records, move.after.next_offset),
            )
        if start is not None:
            log.warning(
                "%s: the offset map of %s was made anew from upstream offset %d on: what was "
                "before is not all on the target, or not in the stage, any more",
                *(self.role, move.target, start),
            )
