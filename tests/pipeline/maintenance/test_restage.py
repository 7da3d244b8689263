"""Damaged segments are detected, and segments are grouped to stage them again."""

import dataclasses

import pytest

from pipeline.maintenance.restage import (
    GROUP_MEMORY_BYTES,
    SegmentLookup,
    group_segments,
    join_contiguous,
    sort_for_file,
)
from tests.support.staged_lake import batch_of, in_one_slot, row, segment_of

A, B = in_one_slot(2)
LATER = dataclasses.replace(A, topic_id="life2")


def rows(source, *offsets):
    return source, batch_of(row(source, offset) for offset in offsets)


def segment(source, start, end, sequence=1):
    return segment_of(source, [row(source, i) for i in range(start, end)], sequence, 1)


FIRST, SECOND, OTHER = segment(A, 0, 4), segment(A, 4, 6), segment(B, 0, 3)


@pytest.mark.parametrize(
    ("read", "whole", "torn"),
    [
        pytest.param(
            [rows(A, 0, 1), rows(A, 2, 3, 4, 5), rows(B, 0, 1, 2)], {FIRST, SECOND, OTHER}, set(),
            id="in any batching",
        ),
        pytest.param([rows(A, 0, 1, 2)], set(), {FIRST}, id="a record is missing"),
        pytest.param([rows(A, 0, 1, 2, 3, 3)], set(), {FIRST}, id="a record is there twice"),
        pytest.param([rows(A, 0, 1, 3, 2)], set(), {FIRST}, id="two records are out of order"),
        pytest.param([rows(A, 8, 9), rows(LATER, 0)], set(), set(), id="records of no segment"),
        pytest.param(
            [(A, batch_of([{**row(A, 4), "value": b"x"}, row(A, 5)]))], set(), {SECOND},
            id="a record has other content",
        ),
    ],
)  # fmt: skip
def test_a_segment_is_intact_only_if_all_its_records_are_unchanged_and_in_order(read, whole, torn):
    assert SegmentLookup([FIRST, SECOND, OTHER]).take(read) == (whole, torn)


def test_no_group_contains_sequences_on_both_sides_of_a_file_that_stays():
    held = [segment(A, 10 * i, 10 * i + 10, sequence=i) for i in (1, 2, 4, 5)]

    found = group_segments(reversed(held), [3, 9])

    assert [[s.sequence for s in group] for group in found] == [[1, 2], [4, 5]]


def test_segments_of_one_sequence_stay_in_one_group_and_groups_are_bounded_in_bytes():
    large = [
        dataclasses.replace(
            segment(source, i, i + 1, sequence=i), size_bytes=GROUP_MEMORY_BYTES // 3
        )
        for i in (1, 2)
        for source in (A, B)
    ]

    assert [[s.sequence for s in group] for group in group_segments(large, [])] == [[1, 1], [2, 2]]


def test_contiguous_segments_of_a_partition_are_joined():
    apart = segment(A, 8, 9)

    assert join_contiguous([apart, OTHER, SECOND, FIRST]) == [[FIRST, SECOND], [apart], [OTHER]]


def test_a_file_has_the_incarnations_of_a_partition_in_the_order_of_staging():
    later = segment(LATER, 0, 2, sequence=2)

    assert sort_for_file([later, OTHER, SECOND, FIRST]) == [FIRST, SECOND, later, OTHER]
