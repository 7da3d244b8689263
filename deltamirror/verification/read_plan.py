"""Plan a comparison of one flow: each partition's evidence and its ranges on each side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamirror.verification.cluster_snapshot import (
    SourceSnapshot,
    TargetSnapshot,
    evidence_of,
    incarnations_of,
    source_watermarks,
    target_incarnations,
)
from pipeline.offset_map.runs import Runs
from pipeline.verification.parts import (
    PART_RECORDS,
    Part,
    split_parts,
    with_source_range,
    with_target_shares,
)
from pipeline.verification.stage_audit import Evidence
from pipeline.verification.target_audit import StagedIncarnation, TargetView, monotonic_runs
from resources.delta.records_table import RecordsTable
from schemas.errors.base import DeltamirrorError
from schemas.errors.lake import StageIncompleteError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.verification import EXPIRED_STAGED, STAGED, PartitionFindings

TargetShare = tuple[list[StagedIncarnation], TargetView]
"""The incarnations that should be on the target, in order, and the target range to read."""

SMALL_RECORDS = 4_096
"""Records up to which a partition is read together with others of its slot."""

MAX_PARTITIONS_TOGETHER = 64
"""Maximum number of partitions that are read together."""


@dataclass
class PartitionPlan:
    """The plan of one partition: its *segments*, and its ranges on both clusters.

    *source* and *target* are None if that side is not compared or has nothing of the partition.
    *kept* is, by incarnation, the first staged offset that retention has left. *runs* are the
    offset runs that increase monotonically; *is_faulty* means that some do not. *is_asked* means
    that the source or the staged records are compared too, not only the target.
    """

    partition: TopicPartition
    found: PartitionFindings
    segments: pa.Table
    kept: Mapping[str, int]
    source: Watermarks | None = None
    target: TargetShare | None = None
    runs: dict[str, Runs] = field(default_factory=dict)
    is_asked: bool = False
    is_faulty: bool = False

    @property
    def incarnations(self) -> list[str]:
        """Return the incarnations, in the order of staging."""
        return list(self.kept)

    @property
    def records(self) -> int:
        """Return the number of staged records."""
        return int(pc.sum(self.segments["count"]).as_py() or 0)

    @property
    def size_bytes(self) -> int:
        """Return the staged size in bytes."""
        return int(pc.sum(self.segments["size_bytes"]).as_py() or 0)

    def evidence(self, incarnation: str) -> Iterator[Evidence]:
        """Yield the evidence of *incarnation* that retention has left."""
        return evidence_of(self.segments, incarnation, self.kept[incarnation])

    def source_partition(self, name: str) -> SourcePartition:
        """Return the partition in incarnation *name*."""
        return SourcePartition(self.partition.topic, name, self.partition.partition)

    def parts(self, most_records: int = PART_RECORDS) -> Iterator[Part]:
        """Yield the partition in parts of at most *most_records*, in order, with their ranges."""
        if not self.is_asked and self.target is None:
            return
        parts: Iterable[Part] = self._cut(most_records)
        if self.target is not None:
            incarnations, view = self.target
            known = {
                incarnation.incarnation: (incarnation, self.runs[incarnation.incarnation])
                for incarnation in incarnations
            }
            parts = with_target_shares(parts, known, view)
        yield from parts

    def _cut(self, most_records: int) -> Iterator[Part]:
        for name in self.incarnations:
            for part in split_parts(self.source_partition(name), self.evidence(name), most_records):
                is_newest = self.source is not None and name == self.incarnations[-1]
                yield with_source_range(part, self.source) if is_newest and self.source else part


def plan_partition(
    flow: str,
    partition: TopicPartition,
    segments: pa.Table,
    records: RecordsTable,
    source: SourceSnapshot | None,
    target: TargetSnapshot | None,
    sides: Collection[str],
) -> PartitionPlan:
    """Return the plan of *partition*. Errors that prevent its comparison are in its findings."""
    found = PartitionFindings(flow, partition)
    plan = PartitionPlan(partition, found, segments, _retained_starts(records, partition, segments))
    plan.is_asked = STAGED in sides or source is not None
    for incarnation, kept in plan.kept.items():
        gone = segments.filter((pc.field("topic_id") == incarnation) & (pc.field("start") < kept))
        found.counts[EXPIRED_STAGED] += int(pc.sum(gone["count"]).as_py() or 0)
        if STAGED in sides:
            found.add_errors(
                _broken(partition, segments.filter(pc.field("topic_id") == incarnation))
            )
    try:
        if source is not None:
            plan.source = source_watermarks(partition, plan.incarnations[-1], source)
    except DeltamirrorError as error:
        found.errors.append(error)
    try:
        if target is not None:
            plan.target = target_incarnations(partition, plan.incarnations, target)
            found.add_errors(target.held_back_at(partition))
    except DeltamirrorError as error:
        found.errors.append(error)
    if plan.target is not None:
        plan.runs, faults = monotonic_runs(plan.target[0])
        plan.is_faulty = bool(faults)
    return plan


def limit_to_snapshot(before: TargetShare | None, now: TargetShare | None) -> TargetShare | None:
    """Return the share of *before* with the runs and the log start of *now*.

    Records that arrived in between are left out.
    """
    if before is None or now is None:
        return None
    shares = {incarnation.incarnation: incarnation for incarnation in before[0]}
    incarnations = [
        replace(shares[incarnation.incarnation], runs=incarnation.runs)
        for incarnation in now[0]
        if incarnation.incarnation in shares
    ]
    end = max(before[1].end, now[1].low)
    return incarnations, replace(now[1], end=min(end, now[1].end))


def bundles(plans: Iterable[tuple[PartitionPlan, Iterator[Part]]]) -> Iterator[list[Part]]:
    """Yield bundles of parts: small partitions of a slot together, large ones part by part."""
    small: dict[int, list[Part]] = {}
    for plan, parts in plans:
        for part in parts:
            if plan.records > SMALL_RECORDS or len(plan.incarnations) > 1:
                yield [part]
                continue
            waiting = small.setdefault(plan.partition.slot, [])
            if (
                any(each.source == part.source for each in waiting)
                or len(waiting) == MAX_PARTITIONS_TOGETHER
            ):
                yield small.pop(plan.partition.slot)
                waiting = small.setdefault(plan.partition.slot, [])
            waiting.append(part)
    yield from small.values()


def _broken(partition: TopicPartition, segments: pa.Table) -> Iterator[StageIncompleteError]:
    """Yield an error at the first hole between the segments of one incarnation."""
    starts, ends = segments["start"].to_numpy(), segments["end"].to_numpy()
    for i in np.flatnonzero(starts[1:] != ends[:-1])[:1]:
        yield StageIncompleteError(partition, wanted=int(ends[i]), found=int(starts[i + 1]))


def _retained_starts(
    records: RecordsTable, partition: TopicPartition, segments: pa.Table
) -> dict[str, int]:
    return {
        incarnation: records.retained_from(
            SourcePartition(partition.topic, incarnation, partition.partition)
        )
        or 0
        for incarnation in incarnations_of(segments)
    }
