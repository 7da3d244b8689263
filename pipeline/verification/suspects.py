"""Find the ranges to compare record by record: those whose digests differ between the sides.

A range that a cluster has deleted by retention is reported and not compared. A range that a cluster
holds only in part, or that is not completely replayed, is compared record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.verification.parts import Part
from pipeline.verification.range_sums import RangeDigest
from pipeline.verification.stage_audit import Evidence
from pipeline.verification.target_audit import StagedIncarnation, TargetView, monotonic_runs
from schemas.errors.base import DeltamirrorError
from schemas.errors.source import LogTruncatedError, RecordsExpiredError
from schemas.verification import (
    EXPIRED_DOWNSTREAM,
    EXPLAINED,
    GONE_UPSTREAM,
    SOURCE,
    STAGED,
    TARGET,
)

Span = tuple[int, int]


@dataclass(frozen=True)
class SideDigests:
    """One side's digests of a part, one for each segment.

    *repeated* are the indexes of segments of which the stage holds an offset more than once.
    *extras* are downstream ranges `[start, end)` with records that are not in the offset map.
    *error* ended the reading.
    """

    digests: tuple[RangeDigest, ...]
    repeated: frozenset[int] = frozenset()
    extras: tuple[Span, ...] = ()
    error: DeltamirrorError | None = None


LOG_START_MOVED = (RecordsExpiredError, LogTruncatedError)
"""Errors if a log's start moved while it was read: the part is compared again record by record."""


@dataclass(frozen=True)
class SumComparison:
    """Result of a part: *records* agree; *suspects* and *extras* must be compared by record.

    *suspects* are upstream ranges, *extras* are downstream ranges, *explained* are counts of
    deleted records. At least one record before upstream offset *first_match* is on the target, so
    retention cannot have deleted later ones.
    """

    records: int
    suspects: tuple[Span, ...] = ()
    extras: tuple[Span, ...] = ()
    explained: Mapping[str, int] = field(default_factory=dict)
    first_match: int | None = None
    errors: tuple[DeltamirrorError, ...] = ()


def compare_sums(
    part: Part, found: Mapping[str, SideDigests], *, is_counted: bool
) -> SumComparison:
    """Compare the digests of *part*; *found* is by side and always contains `staged`.

    *is_counted*: also compare the stage with its segments.
    """
    read = {side: each for side, each in found.items() if each.error is None}
    errors = tuple(each.error for each in found.values() if each.error is not None)
    has_moved = any(isinstance(error, LOG_START_MOVED) for error in errors)
    explained = dict.fromkeys(EXPLAINED, 0)
    suspects: list[Span] = []
    records = 0
    first_match: int | None = None
    for i, each in enumerate(part.evidence):
        staged = found[STAGED].digests[i]
        others = _others(part, i, read)
        gone = _expired_kinds(part, each)
        is_whole = staged.count == each.count and i not in found[STAGED].repeated
        if is_counted and each.count:
            is_whole = is_whole and staged.content == each.digest
        if has_moved or not is_whole or any(other != staged for other in others.values()):
            suspects.append((each.start, each.end))
        elif others or gone or is_counted:
            records += staged.count
            if first_match is None and TARGET in others and staged.count:
                first_match = each.end
            for kind in gone:
                explained[kind] += staged.count
    extras = found[TARGET].extras if TARGET in found else ()
    reported = tuple(error for error in errors if not isinstance(error, LOG_START_MOVED))
    return SumComparison(records, _merge_spans(suspects), extras, explained, first_match, reported)


def _others(part: Part, i: int, read: Mapping[str, SideDigests]) -> dict[str, RangeDigest]:
    """Return the digests of a segment on each cluster that should hold at least a part of it."""
    others: dict[str, RangeDigest] = {}
    each = part.evidence[i]
    if SOURCE in read and part.on_source is not None:
        start, end = part.on_source
        if start < each.end and each.start < end:
            others[SOURCE] = read[SOURCE].digests[i]
    target_share = part.on_target
    if (
        TARGET in read
        and target_share is not None
        and each.start < target_share.reach
        and each.end > target_share.gone
    ):
        others[TARGET] = read[TARGET].digests[i]
    return others


def _expired_kinds(part: Part, each: Evidence) -> list[str]:
    """Return the clusters' kinds of expiry that cover the whole segment."""
    gone = []
    if part.on_source is not None and not each.is_accepted:
        start, end = part.on_source
        if each.end <= start or each.start >= end:
            gone.append(GONE_UPSTREAM)
    if part.on_target is not None and each.end <= part.on_target.gone:
        gone.append(EXPIRED_DOWNSTREAM)
    return gone


def _merge_spans(spans: list[Span]) -> tuple[Span, ...]:
    """Return *spans*, in order, with adjacent and overlapping ones joined."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and joined[-1][1] >= start:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return tuple(joined)


@dataclass
class SuspectRanges:
    """The *suspects* of each incarnation and the *extras* on the target, each in order.

    *first_match* is a pair (number of the incarnation, upstream offset). At least one record before
    it is on the target.
    """

    suspects: dict[str, list[Span]] = field(default_factory=dict)
    extras: list[Span] = field(default_factory=list)
    first_match: tuple[int, int] | None = None

    def __bool__(self) -> bool:
        return bool(self.suspects or self.extras)

    def add(self, part: Part, number: int, comparison: SumComparison) -> None:
        """Add the comparison of *part* of incarnation *number*; parts come in any order."""
        if comparison.suspects:
            spans = self.suspects.setdefault(part.source.topic_id, [])
            spans += comparison.suspects
            spans.sort()
        self.extras = sorted([*self.extras, *comparison.extras])
        if comparison.first_match is not None:
            first_match = number, comparison.first_match
            self.first_match = (
                first_match if self.first_match is None else min(first_match, self.first_match)
            )


def select_evidence(evidence: Iterable[Evidence], spans: Sequence[Span]) -> list[Evidence]:
    """Return the *evidence* inside *spans*; both are in order."""
    found: list[Evidence] = []
    left = iter(spans)
    span = next(left, None)
    for each in evidence:
        while span is not None and span[1] < each.end:
            span = next(left, None)
        if span is None:
            break
        if span[0] <= each.start and each.end <= span[1]:
            found.append(each)
    return found


def locate_on_target(
    suspect_ranges: SuspectRanges, incarnations: Sequence[StagedIncarnation], view: TargetView
) -> list[Span]:
    """Return the downstream ranges, in order, in which the suspect records can be.

    The range of a suspect extends from the last mapped record before it to the first mapped record
    after it.
    """
    monotonic, _ = monotonic_runs(incarnations)
    runs = [monotonic[staged.incarnation] for staged in incarnations]
    spans = list(suspect_ranges.extras)
    for number, staged in enumerate(incarnations):
        floor = max((each.downstream_end for each in runs[:number]), default=0)
        later = (int(each.downstream[0]) for each in runs[number + 1 :] if len(each))
        ceiling = next(later, view.end)
        for start, end in suspect_ranges.suspects.get(staged.incarnation, ()):
            first = max(floor, runs[number].downstream_end_below(start))
            after = runs[number].downstream_at_or_after(end)
            spans.append((first, max(first, ceiling if after is None else after)))
    return sorted(spans)
