"""Split a partition's segments into parts to compare one by one, or sample them.

The size of a part is bounded, which bounds memory and the work lost if a comparison is killed. The
target's log is split at the downstream offsets of the parts' last records:

    segments   [10, 13) [13, 18)  |  [18, 30)          parts
    target     low .. 8           |  8 .. end          each offset belongs to one part
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pipeline.offset_map.runs import Runs
from pipeline.verification.stage_audit import Evidence
from pipeline.verification.target_audit import StagedIncarnation, TargetView
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks

PART_RECORDS = 2_000_000
"""Records of a part: enough to make the cost of prefetching past its end negligible."""

SAMPLE_RECORDS = 100_000
"""Records of a part if only a sample is compared."""

PART_SEGMENTS = 10_000
"""Maximum number of segments of a part."""


@dataclass(frozen=True)
class TargetShare:
    """A part's share `[start, end)` of a target partition, and the *runs* of the part's records.

    *topic_id* is the target topic's id. The target has deleted the records below upstream offset
    *gone*. Records at or after *reach* are not on the target yet.
    """

    partition: TopicPartition
    topic_id: str
    start: int
    end: int
    runs: Runs
    gone: int
    reach: int


@dataclass(frozen=True)
class Part:
    """Consecutive segments of one incarnation, in order, and where their records are.

    *on_source* are the offsets that the source still holds; None: the source is not read.
    """

    source: SourcePartition
    evidence: tuple[Evidence, ...]
    on_source: tuple[int, int] | None = None
    on_target: TargetShare | None = None

    @property
    def start(self) -> int:
        """Return the first upstream offset."""
        return self.evidence[0].start

    @property
    def end(self) -> int:
        """Return the upstream offset after the part."""
        return self.evidence[-1].end

    @property
    def records(self) -> int:
        """Return how many records were staged."""
        return sum(each.count for each in self.evidence)


def split_parts(
    source: SourcePartition, evidence: Iterable[Evidence], most_records: int = PART_RECORDS
) -> Iterator[Part]:
    """Yield the segments of one incarnation, in order of offset, as parts.

    Offsets that no segment covers become ranges without records (`Evidence.is_missing`), so any
    record there is a difference. A part ends after an accepted gap, because the source is not read
    there.
    """
    held: list[Evidence] = []
    records = 0
    for each in with_missing_ranges(evidence):
        held.append(each)
        records += each.count
        if records >= most_records or len(held) == PART_SEGMENTS or each.is_accepted:
            yield Part(source, tuple(held))
            held, records = [], 0
    if held:
        yield Part(source, tuple(held))


def with_source_range(part: Part, held: Watermarks) -> Part:
    """Return *part* with the offsets that can be read from the source, whose range is *held*."""
    end = part.evidence[-1].start if part.evidence[-1].is_accepted else part.end
    start, end = max(part.start, held.low), min(end, held.stable)
    return replace(part, on_source=(start, max(start, end)))


def with_target_shares(
    parts: Iterable[Part],
    incarnations: Mapping[str, tuple[StagedIncarnation, Runs]],
    view: TargetView,
) -> Iterator[Part]:
    """Yield *parts*, of all incarnations in order, with their shares of the target.

    The runs of *incarnations* increase. The last part's share extends to the end of the target.
    """
    at: int | None = None
    waiting: tuple[Part, StagedIncarnation, Runs] | None = None
    for part in parts:
        staged, runs = incarnations[part.source.topic_id]
        if waiting is not None:
            at = max(_first_downstream(*waiting, view) if at is None else at, view.low)
            end = max(at, min(waiting[2].downstream_end_below(waiting[0].end), view.end))
            yield _with_target_share(*waiting, view, at, end)
            at = end
        waiting = part, staged, runs
    if waiting is not None:
        at = _first_downstream(*waiting, view) if at is None else at
        yield _with_target_share(*waiting, view, at, view.end)


def _first_downstream(part: Part, _: StagedIncarnation, runs: Runs, view: TargetView) -> int:
    """Return the downstream start of a partition's first part, after records that expired."""
    return min(view.end, max(view.low, runs.downstream_end_below(part.start)))


def _with_target_share(
    part: Part, staged: StagedIncarnation, runs: Runs, view: TargetView, start: int, end: int
) -> Part:
    reach = max(staged.reach, runs.upstream_end)
    mine = runs.overlapping(part.start, part.end)
    gone = runs.upstream_end_below(view.low)
    at = view.partition, view.topic_id, start, max(start, end)
    return replace(part, on_target=TargetShare(*at, mine, gone, reach))


def sample_parts(parts: Iterable[Part], share: float, seed: str) -> Iterator[Part]:
    """Yield about *share* (0 to 1) of *parts*, at least one; *seed* determines the choice."""
    chance = random.Random(seed)
    left_out: Part | None = None
    is_any = False
    for number, part in enumerate(parts, 1):
        if chance.random() < share:
            is_any = True
            yield part
        elif chance.random() < 1 / number:
            left_out = part
    if not is_any and left_out is not None:
        yield left_out


def with_missing_ranges(evidence: Iterable[Evidence]) -> Iterator[Evidence]:
    """Yield *evidence*, in order of offset, with an entry for each missing range between."""
    end: int | None = None
    for each in evidence:
        if end is not None and end < each.start:
            yield Evidence(end, each.start, 0, "", is_missing=True)
        end = each.end if end is None else max(end, each.end)
        yield each
