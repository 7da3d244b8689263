"""Digests of ranges find exactly the ranges with differences, and parts bound the memory."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.offset_map.runs import Runs, validate_runs
from pipeline.verification.parts import (
    Part,
    sample_parts,
    split_parts,
    with_source_range,
    with_target_shares,
)
from pipeline.verification.range_sums import RangeDigests
from pipeline.verification.stage_audit import Evidence
from pipeline.verification.suspects import (
    SideDigests,
    SuspectRanges,
    compare_sums,
    locate_on_target,
    select_evidence,
)
from pipeline.verification.target_audit import StagedIncarnation, TargetView
from schemas.errors.source import RangeUnfinishedError, RecordsExpiredError
from schemas.kafka.partition import SourcePartition, Watermarks
from schemas.offset_map import OffsetRun
from schemas.verification import EXPIRED_DOWNSTREAM, GONE_UPSTREAM, SOURCE, STAGED, TARGET
from tests.pipeline.verification.test_audits import REMOTE, evidence, numbered, rows

ORDERS = SourcePartition("orders", "life1", 0)
STAGED_ROWS = numbered(10, 11, 14, 15)
SEGMENTS = (evidence(10, 13, STAGED_ROWS[:2]), evidence(13, 18, STAGED_ROWS[2:]))
RUNS = Runs.of([OffsetRun(10, 3, 2), OffsetRun(14, 6, 2)])


def part_of(segments=SEGMENTS, low=0, target_low=0, reach=18, runs=RUNS):
    (part,) = split_parts(ORDERS, segments)
    incarnation = StagedIncarnation("life1", runs, reach, reach)
    view = TargetView(REMOTE, target_low, 100)
    (part,) = with_target_shares([part], {"life1": (incarnation, runs)}, view)
    return with_source_range(part, Watermarks(low, 18, 18))


def digests(part, records, *, offsets=None, step=3, **more):
    range_digests = RangeDigests([(each.start, each.end) for each in part.evidence])
    for start in range(0, len(records), step):
        batch = rows(*records[start : start + step])
        given_ = offsets[start : start + step] if offsets else None
        range_digests.add(batch, batch.column("offset").to_numpy() if given_ is None else given_)
    return SideDigests(tuple(range_digests.digests()), frozenset(range_digests.repeated), **more)


def compared(part, staged=STAGED_ROWS, source=STAGED_ROWS, target=STAGED_ROWS, **options):
    found = {STAGED: digests(part, staged, step=1)}
    for side, records in ((SOURCE, source), (TARGET, target)):
        if records is not None:
            found[side] = records if isinstance(records, SideDigests) else digests(part, records)
    return compare_sums(part, found, **{"is_counted": True} | options)


def test_equal_sides_have_no_suspect_ranges_in_any_batching():
    comparison = compared(part_of())

    assert (comparison.records, comparison.suspects, comparison.errors) == (4, (), ())
    assert comparison.first_match == 13


ALTERED = [*STAGED_ROWS[:3], (15, b"x")]
SWAPPED = [(10, b"11"), (11, b"10"), *STAGED_ROWS[2:]]
LOG_START_MOVED = [*STAGED_ROWS[:2], (14, b"14"), (16, b"15")]


@pytest.mark.parametrize("side", ["staged", "source", "target"])
@pytest.mark.parametrize(
    ("records", "suspect"),
    [
        pytest.param(STAGED_ROWS[1:], (10, 13), id="lost"),
        pytest.param(STAGED_ROWS[:2], (13, 18), id="a whole range lost"),
        pytest.param([*STAGED_ROWS, (16, b"15")], (13, 18), id="one too many"),
        pytest.param(ALTERED, (13, 18), id="altered"),
        pytest.param(SWAPPED, (10, 13), id="reordered"),
        pytest.param(LOG_START_MOVED, (13, 18), id="the same records under other offsets"),
    ],
)
def test_a_difference_on_one_side_makes_only_its_range_suspect(side, records, suspect):
    comparison = compared(part_of(), **{side: records})

    assert comparison.suspects == (suspect,)
    assert comparison.records == 2


def test_an_offset_that_the_stage_holds_twice_makes_its_range_suspect():
    assert compared(part_of(), staged=[*STAGED_ROWS, *STAGED_ROWS[:1]]).suspects == ((10, 13),)


def test_an_empty_segment_is_suspect_if_the_source_has_records_in_its_range():
    part = part_of([SEGMENTS[0], evidence(13, 18, [])])

    comparison = compared(part, staged=STAGED_ROWS[:2], target=STAGED_ROWS[:2])

    assert comparison.suspects == ((13, 18),)


def test_offsets_without_a_segment_are_suspect_if_any_side_has_a_record_there():
    part = part_of([SEGMENTS[0], evidence(14, 18, STAGED_ROWS[2:])])

    assert compared(part).suspects == ()
    more = numbered(10, 11, 13, 14, 15)
    assert compared(part, source=more).suspects == ((13, 14),)
    assert compared(part, staged=more, source=None, target=None).suspects == ((13, 14),)


def test_a_digest_that_differs_from_the_segments_is_suspect_if_segments_are_checked():
    part = part_of([evidence(10, 13, numbered(10, 12)), SEGMENTS[1]])

    assert compared(part).suspects == ((10, 13),)
    assert compared(part, is_counted=False).suspects == ()


def test_deleted_ranges_are_reported_and_only_partly_deleted_ranges_are_suspect():
    gone = compared(part_of(low=13), source=STAGED_ROWS[2:])
    half = compared(part_of(low=11), source=STAGED_ROWS[1:])
    segments = [evidence(10, 12, STAGED_ROWS[:2]), evidence(12, 18, STAGED_ROWS[2:])]
    downstream = compared(part_of(segments, target_low=5), target=STAGED_ROWS[2:])

    assert (gone.suspects, gone.records, gone.explained[GONE_UPSTREAM]) == ((), 4, 2)
    assert half.suspects == ((10, 13),)
    assert (downstream.suspects, downstream.explained[EXPIRED_DOWNSTREAM]) == ((), 2)


def test_records_that_are_not_replayed_yet_are_not_suspect():
    part = part_of(runs=Runs.of([OffsetRun(10, 3, 2)]), reach=13)

    assert compared(part, target=STAGED_ROWS[:2]).suspects == ()


def test_a_side_that_cannot_be_read_is_an_error_and_the_others_are_compared():
    error = RangeUnfinishedError(ORDERS, at=1, end=2, reason="it is down")
    comparison = compared(part_of(), source=digests(part_of(), [], error=error), target=ALTERED)

    assert (comparison.errors, comparison.suspects) == ((error,), ((13, 18),))


def test_a_part_whose_log_start_moved_during_reading_is_suspect_and_no_error():
    error = RecordsExpiredError(ORDERS, wanted=10, low=11)
    comparison = compared(part_of(), source=digests(part_of(), [], error=error))

    assert (comparison.errors, comparison.suspects) == ((), ((10, 18),))


@given(st.data())
def test_exactly_the_ranges_with_a_difference_are_suspect(data):
    staged = numbered(*sorted(data.draw(st.sets(st.integers(0, 40), min_size=1))))
    edges = sorted({0, 41, *data.draw(st.sets(st.integers(0, 41)))})
    segments = [evidence(a, b, [r for r in staged if a <= r[0] < b]) for a, b in pairwise(edges)]
    (part,) = split_parts(ORDERS, segments)
    part = with_source_range(part, Watermarks(0, 41, 41))
    altered = data.draw(st.sets(st.sampled_from(staged)))
    lost = data.draw(st.sets(st.sampled_from(staged)))
    there = [(o, b"x" if (o, v) in altered else v) for o, v in staged if (o, v) not in lost]

    comparison = compared(part, staged=staged, source=there, target=None)

    touched = {o for o, _ in altered | lost}
    expected = [(e.start, e.end) for e in segments if any(e.start <= o < e.end for o in touched)]
    assert [(e.start, e.end) for e in select_evidence(segments, comparison.suspects)] == expected
    assert comparison.records == sum(
        e.count for e in segments if (e.start, e.end) not in set(expected)
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 3)), min_size=1))
def test_lookups_of_upstream_and_downstream_offsets_are_inverse(steps):
    runs, upstream, downstream = [], 0, 0
    for gap, length, marker in steps:
        runs.append(OffsetRun(upstream + gap, downstream + marker, length))
        upstream, downstream = runs[-1].upstream_end, runs[-1].downstream_end
    pairs = {
        run.upstream_start + i: run.downstream_start + i for run in runs for i in range(run.length)
    }
    columns, faults = validate_runs(Runs.of(runs), 0)

    for offset in range(upstream + 2):
        downstream_offset = pairs.get(offset, -1)
        assert columns.downstream_offsets(_one(offset)) == downstream_offset
        behind = [p + 1 for o, p in pairs.items() if o < offset]
        assert columns.downstream_end_below(offset) == max(behind, default=0)
        ahead = [p for o, p in pairs.items() if o >= offset]
        assert columns.downstream_at_or_after(offset) == min(ahead, default=None)
    for downstream_offset in range(downstream + 2):
        found = [o for o, p in pairs.items() if p == downstream_offset]
        assert columns.upstream_offsets(_one(downstream_offset)) == (found or [-1])[0]
        below = [o + 1 for o, p in pairs.items() if p < downstream_offset]
        assert columns.upstream_end_below(downstream_offset) == max(below, default=0)
    assert faults == []


def _one(number):
    return np.array([number], np.int64)


def many(count, size=1):
    return [Evidence(i * 10, i * 10 + 10, size, "") for i in range(count)]


def test_a_long_partition_is_split_completely_into_parts_of_bounded_size():
    parts = list(split_parts(ORDERS, many(25, size=10), most_records=100))

    assert [part.records for part in parts] == [100, 100, 50]
    assert [(part.start, part.end) for part in parts] == [(0, 100), (100, 200), (200, 250)]


def test_every_downstream_offset_belongs_to_exactly_one_part():
    runs = Runs.of([OffsetRun(i * 10, i * 20 + 5, 10) for i in range(4)])
    incarnation, view = StagedIncarnation("life1", runs, 40, 40), TargetView(REMOTE, 0, 90)

    parts = with_target_shares(
        split_parts(ORDERS, many(4), most_records=1), {"life1": (incarnation, runs)}, view
    )

    downstream_offsets = [(part.on_target.start, part.on_target.end) for part in parts]
    assert downstream_offsets == [(0, 15), (15, 35), (35, 55), (55, 90)]


def test_the_source_is_not_read_in_an_accepted_gap():
    accepted = Evidence(10, 20, 0, "", is_accepted=True)
    parts = split_parts(ORDERS, [*many(1), accepted, Evidence(20, 30, 1, "")])

    read = [with_source_range(part, Watermarks(0, 30, 30)).on_source for part in parts]
    assert read == [(0, 10), (20, 30)]


def test_a_sample_is_the_same_for_the_same_seed_and_never_empty():
    parts = [Part(ORDERS, (each,)) for each in many(200)]

    some = list(sample_parts(parts, 0.2, "seed"))

    assert some == list(sample_parts(parts, 0.2, "seed"))
    assert 10 < len(some) < 80
    assert some != list(sample_parts(parts, 0.2, "another"))
    assert all(len(list(sample_parts(parts[:n], 1e-9, "seed"))) == 1 for n in (1, 2, 50))


def test_suspect_records_are_searched_between_their_mapped_neighbours_on_the_target():
    incarnations = [
        StagedIncarnation("old", Runs.of([OffsetRun(0, 0, 10)]), 10, 10),
        StagedIncarnation("new", Runs.of([OffsetRun(0, 20, 10), OffsetRun(20, 40, 10)]), 30, 30),
    ]
    view = TargetView(REMOTE, 0, 60)

    def downstream_offsets(**suspects):
        return locate_on_target(SuspectRanges(suspects=suspects), incarnations, view)

    assert downstream_offsets(new=[(10, 20)]) == [(30, 40)]
    assert downstream_offsets(new=[(0, 10)]) == [(10, 40)]
    assert downstream_offsets(new=[(20, 30)]) == [(30, 60)]
    assert downstream_offsets(old=[(0, 10)]) == [(0, 20)]
    extras = SuspectRanges(extras=[(50, 51)])
    assert locate_on_target(extras, incarnations, view) == [(50, 51)]
