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
from deltamirror.staging.segment_index import Ledger, StagedLink
from deltamirror.topics.remote_topics import RemoteTopics
from deltamirror.worker_tasks import Replayer, deal
from pipeline.monitoring.lag import stand
from resources.coordination.lease import Lease
from resources.spark.session import Workers
from schemas.config.config import FlowConfig
from schemas.errors import (
    DeltamirrorError,
    PartitionDownError,
    PartitionError,
    TargetChangedError,
)
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.flow_state import Standing
from schemas.replay.slot_work import Move, PartitionWork, Progress, SlotReplayed, SlotWork, Unknown

log = logging.getLogger(__name__)

TICK_CHUNKS = 8
"""Chunks that a slot sends before it reports back, so that the map is written in time."""


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
        self.ledger = Ledger(site.lake.segments(self.flow.source))
        self._orders = Orders(site.lake.control)
        self._map = OffsetMap(site.lake.offset_map(self.flow), uuid4().hex)
        self._remote = RemoteTopics(site, flow)
        self.lease = Lease(site.lake.root, f"replay {self.flow.name}")
        self._at: dict[TopicPartition, Progress] = {}
        self._left_out: dict[TopicPartition, PartitionError] = {}
        self._left_out_at: dict[TopicPartition, float] = {}
        self._fits_bytes: dict[int, int] = {}
        self._resumed = 0
        self.paused: set[TopicPartition] = set()

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
        return bool(self.paused) and all(
            p in self.paused for p in self.ledger.partitions() if self.config.replicates(p.topic)
        )

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
        self._at = {}

    def close(self) -> None:
        """Let the workers go, and give the lease back."""
        self.crew.close()
        self.lease.release()

    def progress(self, partition: TopicPartition) -> Progress | None:
        """Return where source *partition* is on the target, as far as it is staged and mapped."""
        at, frontier = self._at.get(partition), self.ledger.chains.frontiers.get(partition)
        if at is None or frontier is None:
            return None
        lives = self.ledger.lives(partition)
        mapped = self._map.end(self._target(partition), at.target_topic_id, lives)
        if mapped is not None:
            return mapped.progress
        # Of what never held a record there is no map.
        has_records = any(staged.link.count for staged in self.ledger.links(partition))
        return None if has_records else at

    def standings(self) -> list[Standing]:
        """Return how far each partition of the flow is, as far as this loop knows: none is asked.

        Where the target has not told yet, it is where the offset map ends.
        """
        return [self._stand(p) for p in self.ledger.partitions() if self.config.replicates(p.topic)]

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
            for p in self.ledger.partitions()
            if self.config.replicates(p.topic)
            and (only is None or p.topic in only)
            and p not in self._left_out
            and p not in self.paused
        ]
        self._learn_progress(partitions)
        works = [w for p in partitions if (w := self._work(p)) is not None]
        if not works:
            return Replayed(is_idle=True)
        answers = self._run(works)
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
                self.ledger = Ledger(self._site.lake.segments(self.flow.source))
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
        unknown = {self._target(p): p for p in partitions if p not in self._at}
        unknown = {t: p for t, p in unknown.items() if self._remote.topic_id(p) is not None}
        if not unknown:
            return
        cluster = self._site.cluster(self.flow.target)
        # What a dead process left pending is settled by the task's fencing, not waited for here.
        found = cluster.committed(self.flow.progress_group, list(unknown), require_stable=False)
        for target, committed in found.items():
            progress = Progress.read(*committed) if committed is not None else None
            if progress is not None:
                self._at[unknown[target]] = progress

    def _stand(self, partition: TopicPartition) -> Standing:
        lives, target = self.ledger.lives(partition), self._target(partition)
        return stand(
            self.ledger.chains.frontiers[partition],
            [(staged.link, staged.oldest_ms) for staged in self.ledger.links(partition)],
            lives,
            self._at.get(partition) or self._map.newest(target, lives),
            target.topic,
            is_paused=partition in self.paused,
        )

    def _target(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition(self.config.remote_topic(partition.topic), partition.partition)

    def _work(self, partition: TopicPartition) -> PartitionWork | None:
        """Return what *partition* has to send; None: nothing, or it cannot go on now."""
        target_topic_id = self._remote.topic_id(partition)
        if target_topic_id is None:
            return None
        target = self._target(partition)
        at = self._at.get(partition)
        former: set[str] = set()
        if at is not None and at.target_topic_id != target_topic_id:
            former.add(at.target_topic_id)
            del self._at[partition]
            at = None
        if at is not None and self._is_staged_anew(partition, at):
            return None
        lives = self.ledger.lives(partition)
        mapped = self._map.end(target, target_topic_id, lives)
        if at is None and mapped is not None:
            log.warning(
                "%s: the group %s has no progress of %s: it goes on where map and log end",
                *(self.duty, self.flow.progress_group, target),
            )
        # From the map's end on, not from progress: what lies between is paired and mapped first.
        links = self._links(partition, mapped.progress if mapped else None)
        last = links[-1].link if links else None
        # Of a partition that never held anything there is no map: seeded, it is done.
        is_done = (
            at is not None
            and last is not None
            and (at.incarnation, at.next_offset) == (last.incarnation, last.end)
            and (at == mapped.progress if mapped else last.start == last.end)
        )
        if last is None or is_done:
            return None
        if mapped is None:
            former |= self._map.other_ids(target, target_topic_id)
        is_ordered = mapped is None and self._may_restart(
            partition, target, target_topic_id, former
        )
        if former and not is_ordered:
            error = TargetChangedError(target, sorted(former)[0], target_topic_id)
            self._leave_out(partition, error)
            return None
        why = self._remote.short(target)
        if why is not None:
            start = at.next_offset if at else links[0].link.start
            self._leave_out(partition, PartitionDownError(target, start, last.end, why))
            return None
        bound = TICK_CHUNKS * self._site.config.chunk_records
        # Without progress the target's log says how far it is, and it may hold more than a tick's.
        chosen = tuple(staged.link for staged in (_first(links, bound, at) if at else links))
        if_unknown = Unknown.LOOK_OR_BEGIN if is_ordered else Unknown.LOOK
        return PartitionWork(partition, target, target_topic_id, chosen, mapped, if_unknown)

    def _links(self, partition: TopicPartition, at: Progress | None) -> list[StagedLink]:
        """Return the links of *partition* from *at* on; replayed ones are forgotten.

        The link that progress lies in or ends is kept: it names the incarnation.
        """
        links = self.ledger.links(partition)
        if at is None:
            return self.ledger.held(partition, self._records)  # a new flow begins behind them
        done = _index_of(links, at)
        if done:
            self.ledger.forget(partition, done)
        return self.ledger.links(partition)

    def _is_staged_anew(self, partition: TopicPartition, at: Progress) -> bool:
        """Return whether the stage will get to *at* by itself: a lost lake is being made anew."""
        frontier = self.ledger.chains.frontiers[partition]
        is_same_life = at.incarnation == frontier.source.topic_id
        return is_same_life and frontier.next_offset < at.next_offset <= frontier.last_stable

    def _may_restart(
        self,
        partition: TopicPartition,
        target: TopicPartition,
        target_topic_id: str,
        former: Collection[str],
    ) -> bool:
        """Return whether an order says to replay *partition* into a topic that was made anew.

        An order is good for one life of the target topic; the map remembers for which.
        """
        if self._map.restarted(target.topic, target_topic_id) is not None:
            return True
        used = max((self._map.restarted(target.topic, life) or 0 for life in former), default=0)
        orders = [
            order
            for order in self._orders.of(self.flow.name)
            if order.order == RESTART and order.is_for(partition) and order.number > used
        ]
        if orders:
            self._map.restart(target.topic, target_topic_id, orders[-1].number)
        return bool(orders)

    def _leave_out(self, partition: TopicPartition, error: PartitionError) -> None:
        self._left_out[partition], self._left_out_at[partition] = error, time.monotonic()
        log.warning("%s %s", self.duty, error)

    def _run(self, works: Sequence[PartitionWork]) -> list[SlotReplayed]:
        """Replay *works* by slots, each with the worker that has its producer."""
        config = self._site.config
        slots: dict[int, list[PartitionWork]] = {}
        for work in works:
            slots.setdefault(work.partition.slot, []).append(work)
        sequences = {
            slot: min(self.ledger.sequence_of(w.partition, w.links[0]) for w in members)
            for slot, members in slots.items()
        }
        self._records.refresh()
        paths = self._records.paths_from(sequences)
        jobs = []
        for slot, members in sorted(slots.items()):
            size, ticks = self._fits_bytes.get(slot, config.chunk_bytes), TICK_CHUNKS
            if slot in self._fits_bytes:
                ticks = 1  # throttled, and a chunk takes long
            jobs.append(
                SlotWork(
                    self.flow,
                    slot,
                    tuple(members),
                    tuple(paths[slot]),
                    config.chunk_records,
                    size,
                    ticks * config.chunk_records,
                    ticks * size,
                )
            )
        return self.crew.run(deal(jobs, self.config, config, self._records.path))

    def _take_in(self, answers: Sequence[SlotReplayed]) -> tuple[Move, ...]:
        """Write the map of what was committed, note who stopped; raise a slot's failure last."""
        moves = tuple(move for answer in answers for move in answer.moves)
        self._map.write(moves)
        for move in moves:
            self._at[move.partition] = move.after
            if move.rebuilt:
                self._tell_rebuilt(move)
        for answer in answers:
            self._pace(answer)
            for partition, error in answer.errors:
                self._leave_out(partition, error)
                self._at.pop(partition, None)
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

    def _pace(self, answer: SlotReplayed) -> None:
        """Let a slot's next transactions hold what the target's quota lets through in time."""
        wished = self._site.config.chunk_bytes
        before = self._fits_bytes.pop(answer.slot, wished)
        fits = answer.fits_bytes if answer.fits_bytes is not None else before * 5 // 4 + 1
        if fits < wished:
            self._fits_bytes[answer.slot] = fits


def _index_of(links: Sequence[StagedLink], at: Progress) -> int:
    """Return which of *links* progress *at* lies in or ends; the first where none says so."""
    done = [
        i
        for i, staged in enumerate(links)
        if staged.link.incarnation == at.incarnation and staged.link.start <= at.next_offset
    ]
    return done[-1] if done else 0


def _first(links: Sequence[StagedLink], records: int, at: Progress) -> list[StagedLink]:
    """Return *links* up to *at*, then those that hold *records* together, one more than needed."""
    start, held = _index_of(links, at), 0
    for i, staged in enumerate(links[start:], start + 1):
        held += staged.link.count
        if held > records and i > start + 1:
            return list(links[:i])
    return list(links)
