"""One source cluster's staging: plan, read and write, commit, seal (DESIGN 2.1)."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from deltamirror.context import Site
from deltamirror.control import ACCEPT_GAP, Orders
from deltamirror.staging.committer import Committer
from deltamirror.staging.source_topics import Sights
from deltamirror.worker_tasks import StageJob, Stager
from pipeline.staging.gaps import accepted, noted
from pipeline.staging.plan import bundle, next_budget, plan
from pipeline.staging.stage import SlotStaged, StageTask
from resources.coordination.lease import Lease
from resources.spark.session import Workers
from schemas.errors import (
    DeltamirrorError,
    PartitionError,
    RangeUnfinishedError,
    RecordUnreadableError,
    TopicDeletedError,
    TopicRecreatedError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.monitoring.stats import Spread
from schemas.staging.frontier import Frontier, Sight, base_id
from schemas.staging.read_range import OffsetRange
from schemas.staging.segment import Segment

log = logging.getLogger(__name__)

RETRY_S = 5.0
"""How long a partition that was not read to its end is left alone."""

DONE = "orders"
"""The mark of `records`: the number of the last order that was carried out."""


@dataclass(frozen=True)
class Staged:
    """What a tick did: the segments it committed, and what was seen of the source.

    *stamps* are the timestamps of each segment's records, in the order of *segments*.
    """

    segments: tuple[Segment, ...] = ()
    stamps: tuple[Spread, ...] = ()
    seen: Mapping[TopicPartition, Watermarks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Held:
    """A partition that is left alone until a time (monotonic, in s), or is another topic's."""

    error: PartitionError
    until: float
    topic_id: str


class Staging:
    """The staging of source cluster *alias*: one of these at a time, by its lease.

    `open` first; then `tick` until satisfied. Not thread-safe.
    """

    def __init__(self, site: Site, alias: str, workers: Workers) -> None:
        self._site, self.alias = site, alias
        self.crew = workers.crew(Stager)
        self._orders = Orders(site.lake.control)
        self.lease = Lease(site.lake.root, f"stage {alias}")
        self._sights = Sights(site, alias)
        self._committer = Committer(site, alias, self._sights)
        self._budget = next_budget(0, site.config.max_batch_bytes, is_behind=False)
        self._held: dict[TopicPartition, _Held] = {}
        self.troubles: dict[TopicPartition, PartitionError] = {}

    @property
    def duty(self) -> str:
        """Return what this is called in bulletins."""
        return self.lease.duty

    def open(self) -> None:
        """Take the lease and learn the frontiers. Raises LeaseHeldError, LakeError."""
        self._site.lake.make()
        self.lease.acquire()
        try:
            self._committer.learn()
        except DeltamirrorError:
            self.lease.release()  # who holds it stages, from frontiers that are known
            raise

    def close(self) -> None:
        """Let the workers go, and give the lease back."""
        self.crew.close()
        self.lease.release()

    def frontier(self, partition: TopicPartition) -> int | None:
        """Return the next offset to stage of *partition*; None: nothing of it is staged yet."""
        known = self._committer.frontiers.get(partition)
        return known.next_offset if known else None

    def tick(self, only: Collection[str] | None = None) -> Staged:
        """Stage what there is, one batch at most; *only* these topics if given.

        Raises UnreachableError: the source does not answer. Troubles of single partitions are in
        `troubles` afterwards.
        """
        seen, lost = self._sights.look(only, self._committer.frontiers)
        self._carry_out_orders(seen, only)
        held = self._still_held(seen)
        free = {p: s for p, s in seen.items() if p not in held}
        owed = self._owed()
        planned = plan(
            free, owed, self._site.config.max_batch_records, from_latest=self._from_latest
        )
        gone = self._sights.gone(owed, only)
        self._note_ends(owed, {**planned.troubles, **gone})
        self.troubles = {**lost, **held, **planned.troubles, **gone}
        segments, stamps = self._stage(planned.ranges) if planned.ranges else ([], ())
        is_behind = any(map(self._is_behind, planned.ranges))
        most = self._site.config.max_batch_bytes
        self._budget = next_budget(self._budget, most, is_behind=is_behind)
        # A process that has just begun learns by reading what an order may have been given for.
        self._carry_out_orders(seen, only, is_last=True)
        return Staged(tuple(segments), stamps, {p: s.watermarks for p, s in seen.items()})

    def refresh_topics(self) -> None:
        """Look for new topics and partitions at the next tick."""
        self._sights.refresh_topics()

    @property
    def _from_latest(self) -> bool:
        return self._site.config.clusters[self.alias].auto_offset_reset == "latest"

    def _owed(self) -> dict[TopicPartition, Frontier]:
        return self._sights.owed(self._committer.frontiers, from_latest=self._from_latest)

    def _note_ends(
        self,
        owed: Mapping[TopicPartition, Frontier],
        troubles: Mapping[TopicPartition, PartitionError],
    ) -> None:
        """Keep on record how far former lives were seen to reach, or a new process forgets it."""
        now_ms, sequence = int(time.time() * 1000), self._committer.next_sequence
        segments = [
            noted(owed[p], now_ms, sequence)
            for p, error in troubles.items()
            if isinstance(error, TopicRecreatedError | TopicDeletedError)
            and owed[p] != self._committer.frontiers.get(p)
        ]
        if segments:
            self._committer.settle(segments, {})

    def _still_held(
        self, seen: Mapping[TopicPartition, Sight]
    ) -> dict[TopicPartition, PartitionError]:
        """Return what still stands in the way: not for longer than it is the same topic."""
        now = time.monotonic()
        self._held = {
            p: held
            for p, held in self._held.items()
            if held.until > now and (p not in seen or seen[p].topic_id == held.topic_id)
        }
        return {p: held.error for p, held in self._held.items()}

    def _stage(self, ranges: Sequence[OffsetRange]) -> tuple[list[Segment], tuple[Spread, ...]]:
        """Read and write *ranges* in Spark tasks, commit and seal; return what was committed.

        With each segment's timestamps.
        """
        config = self._site.config
        bundles = bundle(ranges, config.tasks_max)
        sequence = self._committer.next_sequence
        consumer = config.clusters[self.alias].consumer
        share = self._budget // len(bundles)
        jobs = [
            StageJob(StageTask(tuple(b), sequence, share), consumer, self._committer.records.path)
            for b in bundles
        ]
        answers = self.crew.run(dict(enumerate(jobs)))
        staged = [a for a in answers if isinstance(a, SlotStaged)]
        failures = [a for a in answers if isinstance(a, DeltamirrorError)]
        for slot in staged:
            for planned, error in slot.errors:
                self._hold(planned.partition, error)
        committed = self._committer.commit(staged)
        if failures:
            raise failures[0]
        return committed

    def _is_behind(self, planned: OffsetRange) -> bool:
        """Return whether the source held more of the partition than is staged of it now."""
        staged = self.frontier(planned.partition.plain)
        return staged is None or staged < planned.watermarks.stable

    def _hold(self, source: SourcePartition, error: PartitionError) -> None:
        """Leave the partition alone: for a while, or until an operator accepts the gap."""
        partition = source.plain
        # A partition that has not begun has no gap: it begins where the log does by then.
        has_begun = partition in self._committer.frontiers or isinstance(
            error, RecordUnreadableError
        )
        passing = isinstance(error, RangeUnfinishedError) or not has_begun
        until = time.monotonic() + RETRY_S if passing else float("inf")
        self._held[partition] = _Held(error, until, base_id(source.topic_id))
        self.troubles[partition] = error
        self.refresh_topics()
        log.warning("%s %s", self.duty, error)

    def _carry_out_orders(
        self,
        seen: Mapping[TopicPartition, Sight],
        only: Collection[str] | None,
        *,
        is_last: bool = False,
    ) -> None:
        """Accept the gaps that operators accepted since the last order carried out.

        Orders are done with once they met a gap or, where they meet none, when *is_last*. Those
        for other topics than *only* wait for a tick that looks at them.
        """
        done = self._committer.records.mark(DONE) or 0
        new = (o for o in self._orders.of(self.alias) if o.order == ACCEPT_GAP and o.number > done)
        orders = list(takewhile(lambda o: only is None or o.topic in only, new))
        if not orders:
            return
        owed = self._owed()
        found = self.troubles if is_last else plan(seen, owed, 1).troubles
        troubles = {**found, **self._still_held(seen), **self._sights.gone(owed, only)}
        now_ms, sequence = int(time.time() * 1000), self._committer.next_sequence
        gaps = {
            p: accepted(error, owed[p], seen.get(p), now_ms, sequence)
            for p, error in troubles.items()
            if p in owed and any(order.is_for(p) for order in orders)
        }
        segments = [segment for gap in gaps.values() for segment in gap]
        if not segments and not is_last:
            return
        self._committer.settle(segments, {DONE: orders[-1].number})
        for partition in (p for p, gap in gaps.items() if gap):
            self._held.pop(partition, None)
            self.troubles.pop(partition, None)
        for s in segments:
            log.warning("%s %s [%d, %d) %s", self.duty, s.source, s.start, s.end, s.gap_cause)
