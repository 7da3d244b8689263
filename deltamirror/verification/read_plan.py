"""What a comparison of one flow will read: each partition's evidence, and where its records are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamirror.verification.cluster_snapshot import (
    SourceSeen,
    TargetSeen,
    evidence_of,
    lives_of,
    source_marks,
    target_lives,
)
from pipeline.offset_map.runs import Runs
from pipeline.verification.parts import RECORDS, Part, beside_source, beside_target, cut
from pipeline.verification.stage_audit import Evidence
from pipeline.verification.target_audit import Life, TargetView, rising_runs
from resources.delta.records_table import Records
from schemas.errors import DeltamirrorError, StageIncompleteError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.verification import EXPIRED_STAGED, STAGED, PartitionFindings

OnTarget = tuple[list[Life], TargetView]
"""The incarnations that should be on the target, in order, and what is looked at there."""

SMALL = 4_096
"""Records up to which a partition is read together with others of its slot."""

TOGETHER = 64
"""Partitions that are read together at most."""


@dataclass
class PartitionPlan:
    """One partition: its *segments*, and what both clusters hold (None: not asked, or nothing).

    *kept* is, by incarnation, the first offset that retention has left in the stage, *runs* those
    of the offset map that rise. *is_asked*: more than the target. *is_faulty*: not all runs rise.
    """

    partition: TopicPartition
    found: PartitionFindings
    segments: pa.Table
    kept: Mapping[str, int]
    source: Watermarks | None = None
    target: OnTarget | None = None
    runs: dict[str, Runs] = field(default_factory=dict)
    is_asked: bool = False
    is_faulty: bool = False

    @property
    def lives(self) -> list[str]:
        """Return the incarnations, in the order of staging."""
        return list(self.kept)

    @property
    def records(self) -> int:
        """Return how many records were staged."""
        return int(pc.sum(self.segments["count"]).as_py() or 0)

    @property
    def size_bytes(self) -> int:
        """Return how many bytes were staged."""
        return int(pc.sum(self.segments["size_bytes"]).as_py() or 0)

    def evidence(self, life: str) -> Iterator[Evidence]:
        """Yield what is left of the evidence of *life*."""
        return evidence_of(self.segments, life, self.kept[life])

    def life(self, name: str) -> SourcePartition:
        """Return the partition in incarnation *name*."""
        return SourcePartition(self.partition.topic, name, self.partition.partition)

    def parts(self, most_records: int = RECORDS) -> Iterator[Part]:
        """Yield the partition in parts, in order, with what is to be read of each."""
        if not self.is_asked and self.target is None:
            return
        parts: Iterable[Part] = self._cut(most_records)
        if self.target is not None:
            lives, view = self.target
            known = {life.incarnation: (life, self.runs[life.incarnation]) for life in lives}
            parts = beside_target(parts, known, view)
        yield from parts

    def _cut(self, most_records: int) -> Iterator[Part]:
        for name in self.lives:
            for part in cut(self.life(name), self.evidence(name), most_records):
                is_newest = self.source is not None and name == self.lives[-1]
                yield beside_source(part, self.source) if is_newest and self.source else part


def plan_of(
    flow: str,
    partition: TopicPartition,
    segments: pa.Table,
    records: Records,
    source: SourceSeen | None,
    target: TargetSeen | None,
    sides: Collection[str],
) -> PartitionPlan:
    """Return how to compare *partition*; what stands in the way is in its findings."""
    found = PartitionFindings(flow, partition)
    plan = PartitionPlan(partition, found, segments, _kept(records, partition, segments))
    plan.is_asked = STAGED in sides or source is not None
    for life, kept in plan.kept.items():
        gone = segments.filter((pc.field("topic_id") == life) & (pc.field("start") < kept))
        found.counts[EXPIRED_STAGED] += int(pc.sum(gone["count"]).as_py() or 0)
        if STAGED in sides:
            found.tell(_broken(partition, segments.filter(pc.field("topic_id") == life)))
    try:
        if source is not None:
            plan.source = source_marks(partition, plan.lives[-1], source)
    except DeltamirrorError as error:
        found.errors.append(error)
    try:
        if target is not None:
            plan.target = target_lives(partition, plan.lives, target)
            found.tell(target.held_back_at(partition))
    except DeltamirrorError as error:
        found.errors.append(error)
    if plan.target is not None:
        plan.runs, faults = rising_runs(plan.target[0])
        plan.is_faulty = bool(faults)
    return plan


def as_of(before: OnTarget | None, now: OnTarget | None) -> OnTarget | None:
    """Return what the map and the target say *now* of what was looked at *before*."""
    if before is None or now is None:
        return None
    shares = {life.incarnation: life for life in before[0]}
    lives = [
        replace(shares[life.incarnation], runs=life.runs)
        for life in now[0]
        if life.incarnation in shares
    ]
    end = max(before[1].end, now[1].low)
    return lives, replace(now[1], end=min(end, now[1].end))


def bundles(plans: Iterable[tuple[PartitionPlan, Iterator[Part]]]) -> Iterator[list[Part]]:
    """Yield small partitions of a slot together, a part of each, and large ones part by part."""
    small: dict[int, list[Part]] = {}
    for plan, parts in plans:
        for part in parts:
            if plan.records > SMALL or len(plan.lives) > 1:
                yield [part]
                continue
            waiting = small.setdefault(plan.partition.slot, [])
            if any(each.source == part.source for each in waiting) or len(waiting) == TOGETHER:
                yield small.pop(plan.partition.slot)
                waiting = small.setdefault(plan.partition.slot, [])
            waiting.append(part)
    yield from small.values()


def _broken(partition: TopicPartition, segments: pa.Table) -> Iterator[StageIncompleteError]:
    """Yield where the segments of one incarnation do not lie one behind another."""
    starts, ends = segments["start"].to_numpy(), segments["end"].to_numpy()
    for i in np.flatnonzero(starts[1:] != ends[:-1])[:1]:
        yield StageIncompleteError(partition, wanted=int(ends[i]), found=int(starts[i + 1]))


def _kept(records: Records, partition: TopicPartition, segments: pa.Table) -> dict[str, int]:
    return {
        life: records.kept_from(SourcePartition(partition.topic, life, partition.partition)) or 0
        for life in lives_of(segments)
    }
