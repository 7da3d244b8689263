"""Which ranges have to be looked at record by record: those whose sums are not the same everywhere.

A range that left a cluster by retention is told and not compared; one that a cluster holds only
half of, or that is on its way to the target, is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.cut import Part
from pipeline.summarize import Sum
from pipeline.verify import Evidence
from schemas.errors import DeltamirrorError, LogTruncatedError, RecordsExpiredError
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
class SideSums:
    """What one side holds of a part: a sum for each segment.

    *repeated* are segments of which the stage holds an offset more than once. *extras* are places
    `[start, end)` on the target with records that the map does not know. *error* ended the reading.
    """

    sums: tuple[Sum, ...]
    repeated: frozenset[int] = frozenset()
    extras: tuple[Span, ...] = ()
    error: DeltamirrorError | None = None


MOVED = (RecordsExpiredError, LogTruncatedError)
"""A log's start that moved on while it was read: such a part is looked at with new eyes."""


@dataclass(frozen=True)
class Verdict:
    """What is known of a part: *records* agree, *suspects* and *extras* must be looked at.

    *suspects* are upstream ranges, *extras* places on the target, *explained* counts of what left.
    From upstream offset *met* on it is known that earlier records are on the target.
    """

    records: int
    suspects: tuple[Span, ...] = ()
    extras: tuple[Span, ...] = ()
    explained: Mapping[str, int] = field(default_factory=dict)
    met: int | None = None
    errors: tuple[DeltamirrorError, ...] = ()


def judge(part: Part, found: Mapping[str, SideSums], *, is_counted: bool) -> Verdict:
    """Hold the sums of *part* against each other; *found* by side, `staged` always among them.

    With *is_counted* the stage is held against its own evidence as well.
    """
    read = {side: each for side, each in found.items() if each.error is None}
    errors = tuple(each.error for each in found.values() if each.error is not None)
    has_moved = any(isinstance(error, MOVED) for error in errors)
    explained = dict.fromkeys(EXPLAINED, 0)
    suspects: list[Span] = []
    records = 0
    met: int | None = None
    for i, each in enumerate(part.evidence):
        staged = found[STAGED].sums[i]
        others = _others(part, i, read)
        gone = _gone(part, each)
        is_whole = staged.count == each.count and i not in found[STAGED].repeated
        if is_counted and each.count:
            is_whole = is_whole and staged.content == each.digest
        if has_moved or not is_whole or any(other != staged for other in others.values()):
            suspects.append((each.start, each.end))
        elif others or gone or is_counted:
            records += staged.count
            if met is None and TARGET in others and staged.count:
                met = each.end
            for kind in gone:
                explained[kind] += staged.count
    extras = found[TARGET].extras if TARGET in found else ()
    told = tuple(error for error in errors if not isinstance(error, MOVED))
    return Verdict(records, _joined(suspects), extras, explained, met, told)


def _others(part: Part, i: int, read: Mapping[str, SideSums]) -> dict[str, Sum]:
    """Return what the clusters hold of a segment that they should hold something of."""
    others: dict[str, Sum] = {}
    each = part.evidence[i]
    if SOURCE in read and part.on_source is not None:
        start, end = part.on_source
        if start < each.end and each.start < end:
            others[SOURCE] = read[SOURCE].sums[i]
    place = part.on_target
    if TARGET in read and place is not None and each.start < place.reach and each.end > place.gone:
        others[TARGET] = read[TARGET].sums[i]
    return others


def _gone(part: Part, each: Evidence) -> list[str]:
    """Return in which ways all of a segment has left a cluster."""
    gone = []
    if part.on_source is not None and not each.is_accepted:
        start, end = part.on_source
        if each.end <= start or each.start >= end:
            gone.append(GONE_UPSTREAM)
    if part.on_target is not None and each.end <= part.on_target.gone:
        gone.append(EXPIRED_DOWNSTREAM)
    return gone


def _joined(spans: list[Span]) -> tuple[Span, ...]:
    """Return *spans*, in order, with those joined that touch."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and joined[-1][1] >= start:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return tuple(joined)
