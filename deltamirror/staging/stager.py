"""One source cluster's staging: plan, read and write, commit, seal (DESIGN 2.1)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from deltamirror.context import Site
from deltamirror.control import ACCEPT_GAP, Orders
from deltamirror.staging.segment_index import Ledger
from deltamirror.staging.source_topics import Sights
from deltamirror.worker_tasks import StageJob, Stager
from pipeline.staging.gaps import accepted, explained, frontier_after, noted
from pipeline.staging.plan import bundle, next_budget, plan
from pipeline.staging.stage import SlotStaged, StageTask
from resources.coordination.lease import Lease
from resources.spark.session import Workers
from schemas.errors import (
    DeltamirrorError,
    PartitionError,
    RangeUnfinishedError,
    RecordUnreadableError,
    StalePlanError,
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

SEALED = "records"
"""The mark of `segments`: the version of `records` up to which it is sealed."""


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
        self._records = site.lake.records(alias)
        self._segments = site.lake.segments(alias)
        self._ledger = Ledger(self._segments)
        self._orders = Orders(site.lake.control)
        self.lease = Lease(site.lake.root, f"stage {alias}")
        self._frontiers: dict[TopicPartition, Frontier] = {}
        self._known_version = -1
        self._sights = Sights(site, alias)
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
            self._learn()
        except DeltamirrorError:
            self.lease.release()  # who holds it stages, from frontiers that are known
            raise

    def close(self) -> None:
        """Let the workers go, and give the lease back."""
        self.crew.close()
        self.lease.release()

    def frontier(self, partition: TopicPartition) -> int | None:
        """Return the next offset to stage of *partition*; None: nothing of it is staged yet."""
        known = self._frontiers.get(partition)
        return known.next_offset if known else None

    def tick(self, only: Collection[str] | None = None) -> Staged:
        """Stage what there is, one batch at most; *only* these topics if given.

        Raises UnreachableError: the source does not answer. Troubles of single partitions are in
        `troubles` afterwards.
        """
        seen, lost = self._sights.look(only, self._frontiers)
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

    def _learn(self) -> None:
        """Seal what was committed and not sealed, then read the frontiers.

        Raises LakeError where the two tables contradict each other.
        """
        self._records.refresh()
        self._segments.refresh()
        sealed = self._segments.mark(SEALED) or 0
        for version, segments in self._records.sealed_since(sealed):
            self._seal(version, segments)
        self._ledger.refresh()
        self._frontiers = dict(self._ledger.chains.frontiers)
        self._records.check(self._segments.mark(SEALED) or 0, self._frontiers.values())
        self._known_version = self._records.version

    def refresh_topics(self) -> None:
        """Look for new topics and partitions at the next tick."""
        self._sights.refresh_topics()

    @property
    def _from_latest(self) -> bool:
        return self._site.config.clusters[self.alias].auto_offset_reset == "latest"

    def _owed(self) -> dict[TopicPartition, Frontier]:
        return self._sights.owed(self._frontiers, from_latest=self._from_latest)

    def _note_ends(
        self,
        owed: Mapping[TopicPartition, Frontier],
        troubles: Mapping[TopicPartition, PartitionError],
    ) -> None:
        """Keep on record how far former lives were seen to reach, or a new process forgets it."""
        now_ms, sequence = int(time.time() * 1000), self._records.version + 1
        segments = [
            noted(owed[p], now_ms, sequence)
            for p, error in troubles.items()
            if isinstance(error, TopicRecreatedError | TopicDeletedError)
            and owed[p] != self._frontiers.get(p)
        ]
        if segments:
            self._settle(segments, {})

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
        sequence = self._records.version + 1
        consumer = config.clusters[self.alias].consumer
        share = self._budget // len(bundles)
        jobs = [
            StageJob(StageTask(tuple(b), sequence, share), consumer, self._records.path)
            for b in bundles
        ]
        answers = self.crew.run(dict(enumerate(jobs)))
        staged = [a for a in answers if isinstance(a, SlotStaged)]
        failures = [a for a in answers if isinstance(a, DeltamirrorError)]
        for slot in staged:
            for planned, error in slot.errors:
                self._hold(planned.partition, error)
        committed = self._commit(staged)
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
        has_begun = partition in self._frontiers or isinstance(error, RecordUnreadableError)
        passing = isinstance(error, RangeUnfinishedError) or not has_begun
        until = time.monotonic() + RETRY_S if passing else float("inf")
        self._held[partition] = _Held(error, until, base_id(source.topic_id))
        self.troubles[partition] = error
        self.refresh_topics()
        log.warning("%s %s", self.duty, error)

    def _commit(self, staged: Sequence[SlotStaged]) -> tuple[list[Segment], tuple[Spread, ...]]:
        """Commit files and frontiers of the slots whose topics are still the planned ones."""
        staged = self._of_the_same_topics(staged)
        segments = self._explained([segment for slot in staged for segment in slot.segments])
        if not segments:
            return [], ()
        files = [slot.file for slot in staged if slot.file is not None]
        expected = {r.partition: r.planned_start for slot in staged for r in slot.planned}
        known = self._known_version
        self._write(
            segments,
            lambda: self._records.stage(files, segments, expected, known_version=known),
        )
        return segments, tuple(stamps for slot in staged for stamps in slot.stamps)

    def _settle(self, segments: Sequence[Segment], also: Mapping[str, int]) -> None:
        """Commit *segments* that hold no record, with the marks *also*."""
        expected = {s.source: self._records.frontier(s.source) for s in segments}
        self._write(segments, lambda: self._records.stage([], segments, expected, also))

    def _write(self, segments: Sequence[Segment], commit: Callable[[], int]) -> None:
        """Commit, seal, and remember the frontiers. Raises StalePlanError, having learnt anew."""
        try:
            version = commit()
        except StalePlanError:
            self._learn()
            raise
        self._seal(version, segments)
        self._known_version = version
        for segment in segments:
            after = frontier_after(segment)
            self._frontiers[after.source.plain] = after

    def _of_the_same_topics(self, staged: Sequence[SlotStaged]) -> list[SlotStaged]:
        """Return the slots none of whose topics was made anew while they were read.

        A slot's file holds all of its ranges: if one of them may be of another topic, the file
        is not committed and its ranges are planned anew.
        """
        names = {s.topic for slot in staged for s in slot.segments}
        now = self._site.cluster(self.alias).topics(names) if names else {}
        same = []
        for slot in staged:
            changed = [
                s
                for s in slot.segments
                if s.topic not in now or now[s.topic].topic_id != base_id(s.topic_id)
            ]
            if changed:
                log.warning("%s %s was re-created while it was read", self.duty, changed[0].source)
                self.refresh_topics()
            else:
                same.append(slot)
        return same

    def _explained(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return *segments* with the cause of their gaps, as far as the topics' settings tell it.

        Asked for after the records were read: what was compacted meanwhile is told as such.
        """
        names = {segment.topic for segment in segments if segment.gaps}
        settings = self._site.cluster(self.alias).topic_configs(names) if names else {}
        policies = {name: found.get("cleanup.policy") for name, found in settings.items()}
        return [
            explained(s, policy.value if (policy := policies.get(s.topic)) else None)
            for s in segments
        ]

    def _seal(self, version: int, segments: Sequence[Segment]) -> None:
        """Append *segments* to the ledger; doing it twice is doing it once."""
        rows = [{**segment.to_dict(), "version": version} for segment in segments]
        before = self._segments.mark(SEALED)
        if before is None or before < version:
            self._segments.append(rows, marks={SEALED: version}, expected={SEALED: before})

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
        done = self._records.mark(DONE) or 0
        new = (o for o in self._orders.of(self.alias) if o.order == ACCEPT_GAP and o.number > done)
        orders = list(takewhile(lambda o: only is None or o.topic in only, new))
        if not orders:
            return
        owed = self._owed()
        found = self.troubles if is_last else plan(seen, owed, 1).troubles
        troubles = {**found, **self._still_held(seen), **self._sights.gone(owed, only)}
        now_ms, sequence = int(time.time() * 1000), self._records.version + 1
        gaps = {
            p: accepted(error, owed[p], seen.get(p), now_ms, sequence)
            for p, error in troubles.items()
            if p in owed and any(order.is_for(p) for order in orders)
        }
        segments = [segment for gap in gaps.values() for segment in gap]
        if not segments and not is_last:
            return
        self._settle(segments, {DONE: orders[-1].number})
        for partition in (p for p, gap in gaps.items() if gap):
            self._held.pop(partition, None)
            self.troubles.pop(partition, None)
        for s in segments:
            log.warning("%s %s [%d, %d) %s", self.duty, s.source, s.start, s.end, s.gap_cause)
