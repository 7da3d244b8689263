"""One flow's replay: remote topics, work by slots, transactions, the offset map (DESIGN 2.2)."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import uuid4

from deltamirror.context import Site
from deltamirror.control import RESTART, RESUME, Orders, is_paused
from deltamirror.replay.offset_map import OffsetMap, complete_from
from deltamirror.replay.work_planner import WorkPlanner
from deltamirror.staging.segment_index import Ledger
from deltamirror.topics.remote_topics import RemoteTopics
from deltamirror.worker_tasks import Replayer, deal
from resources.coordination.lease import Lease
from resources.spark.session import Workers
from schemas.config.config import FlowConfig
from schemas.errors import (
    DeltamirrorError,
    PartitionError,
)
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.flow_state import Standing
from schemas.replay.slot_work import Move, PartitionWork, Progress, SlotReplayed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Replayed:
    """What a tick did; *is_idle*: there was nothing to send."""

    moves: tuple[Move, ...] = ()
    is_idle: bool = False


PASSING_S = 15.0
"""How long what passes by itself leaves a partition out, before it is tried again."""


class Replaying:
    """The replay of one flow: one of these at a time, by its lease. Not thread-safe.

    `open` first; then `tick` until satisfied.
    """

    def __init__(self, site: Site, flow: FlowConfig, workers: Workers) -> None:
        self._site, self.config = site, flow
        self.crew = workers.crew(Replayer)
        self.flow = flow.flow
        self._records = site.lake.records(self.flow.source)
        self._orders = Orders(site.lake.control)
        self._map = OffsetMap(site.lake.offset_map(self.flow), uuid4().hex)
        self._remote = RemoteTopics(site, flow)
        self._planner = WorkPlanner(
            site.config,
            flow,
            Ledger(site.lake.segments(self.flow.source)),
            self._records,
            self._map,
            self._remote,
        )
        self.lease = Lease(site.lake.root, f"replay {self.flow.name}")
        self._left_out: dict[TopicPartition, PartitionError] = {}
        self._left_out_at: dict[TopicPartition, float] = {}
        self._resumed = 0
        self.paused: set[TopicPartition] = set()

    @property
    def ledger(self) -> Ledger:
        """Return the index of what is staged of the source."""
        return self._planner.ledger

    @property
    def duty(self) -> str:
        """Return what this is called in bulletins."""
        return self.lease.duty

    @property
    def troubles(self) -> dict[TopicPartition, PartitionError]:
        """Return the partitions that are left out, with why."""
        return {**self._remote.troubles(self.ledger.partitions()), **self._left_out}

    @property
    def is_paused(self) -> bool:
        """Return whether an operator paused every partition of the flow."""
        return bool(self.paused) and all(p in self.paused for p in self._planner.partitions())

    def open(self) -> None:
        """Take the lease and learn where the map ends. Raises LeaseHeldError, LakeError."""
        self._site.lake.make()
        self.lease.acquire()
        try:
            self.learn()
        except DeltamirrorError:
            self.lease.release()  # who holds it knows where the map ends
            raise

    def learn(self) -> None:
        """Forget what is thought of the target, and read the map's ends."""
        self._records.refresh()
        self._map.learn()
        self._planner.at.clear()

    def close(self) -> None:
        """Let the workers go, and give the lease back."""
        self.crew.close()
        self.lease.release()

    def progress(self, partition: TopicPartition) -> Progress | None:
        """Return where source *partition* is on the target, as far as it is staged and mapped."""
        return self._planner.progress(partition)

    def standings(self) -> list[Standing]:
        """Return how far each partition is, as far as this loop knows: no cluster is asked."""
        return [
            self._planner.standing(p, is_paused=p in self.paused)
            for p in self._planner.partitions()
        ]

    def tick(self, only: Collection[str] | None = None) -> Replayed:
        """Replay what is staged, a few chunks a slot at most; *only* these topics if given.

        Raises UnreachableError and other errors of the whole flow. Partitions left out are in
        `troubles`, paused ones in `paused`.
        """
        self.ledger.refresh()
        self._carry_out_orders()
        self._forgive()
        self._remote.refresh(self.ledger.partitions())
        partitions = [
            p
            for p in self._planner.partitions()
            if (only is None or p.topic in only)
            and p not in self._left_out
            and p not in self.paused
        ]
        self._learn_progress(partitions)
        works = self._works(partitions)
        if not works:
            return Replayed(is_idle=True)
        config = self._site.config
        jobs = self._planner.slot_works(works)
        answers = self.crew.run(deal(jobs, self.config, config, self._records.path))
        return Replayed(self._take_in(answers))

    def _carry_out_orders(self) -> None:
        """See who is paused; a resume takes everything back that was left out."""
        orders = self._orders.of(self.flow.name)
        self.paused = {p for p in self.ledger.partitions() if is_paused(orders, p)}
        resumes = [o for o in orders if o.order in (RESUME, RESTART)]
        if resumes and resumes[-1].number > self._resumed:
            self._resumed = resumes[-1].number
            self._left_out.clear()
            self._remote.forget()
            if any(order.order == RESTART for order in resumes):
                self._planner.ledger = Ledger(self._site.lake.segments(self.flow.source))
                self.ledger.refresh()

    def _forgive(self) -> None:
        """Try partitions again that were left out one topic refresh ago; what passes, sooner."""
        interval, now = self.config.refresh_topics_interval_s or float("inf"), time.monotonic()
        for partition, error in list(self._left_out.items()):
            bears_s = min(interval, PASSING_S) if error.passes else interval
            if now - self._left_out_at[partition] > bears_s:
                del self._left_out[partition]

    def _learn_progress(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask the target where partitions are of which that is not known yet.

        Only a hint for planning: the task asks again once it has fenced.
        """
        unknown = {self._planner.target(p): p for p in partitions if p not in self._planner.at}
        unknown = {t: p for t, p in unknown.items() if self._remote.topic_id(p) is not None}
        if not unknown:
            return
        cluster = self._site.cluster(self.flow.target)
        # What a dead process left pending is settled by the task's fencing, not waited for here.
        found = cluster.committed(self.flow.progress_group, list(unknown), require_stable=False)
        for target, committed in found.items():
            progress = Progress.read(*committed) if committed is not None else None
            if progress is not None:
                self._planner.at[unknown[target]] = progress

    def _works(self, partitions: Sequence[TopicPartition]) -> list[PartitionWork]:
        """Return what *partitions* have to send; those that cannot go on are left out."""
        works = []
        for partition in partitions:
            try:
                work = self._planner.work(partition, self._orders)
            except PartitionError as error:
                self._leave_out(partition, error)
                continue
            if work is not None:
                works.append(work)
        return works

    def _leave_out(self, partition: TopicPartition, error: PartitionError) -> None:
        self._left_out[partition], self._left_out_at[partition] = error, time.monotonic()
        log.warning("%s %s", self.duty, error)

    def _take_in(self, answers: Sequence[SlotReplayed]) -> tuple[Move, ...]:
        """Write the map of what was committed, note who stopped; raise a slot's failure last."""
        moves = tuple(move for answer in answers for move in answer.moves)
        self._map.write(moves)
        for move in moves:
            self._planner.at[move.partition] = move.after
            if move.rebuilt:
                self._tell_rebuilt(move)
        for answer in answers:
            self._planner.pace(answer)
            for partition, error in answer.errors:
                self._leave_out(partition, error)
                self._planner.at.pop(partition, None)
        failures = [answer.failure for answer in answers if answer.failure is not None]
        if failures:
            self.learn()
            raise failures[0]
        return moves

    def _tell_rebuilt(self, move: Move) -> None:
        """Log what a map that was made by pairing means, where more was lost than its last runs."""
        start = complete_from(move, self._records)
        if move.before is None:
            log.info(
                "%s: there was no offset map of %s: the target's log holds %d staged records, up "
                "to upstream offset %d, and replay goes on behind them",
                *(self.duty, move.target, move.records, move.after.next_offset),
            )
        if start is not None:
            log.warning(
                "%s: the offset map of %s was made anew from upstream offset %d on: what was "
                "before is not all on the target, or not in the stage, any more",
                *(self.duty, move.target, start),
            )
