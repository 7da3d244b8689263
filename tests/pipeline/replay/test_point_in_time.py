"""A point-in-time replay selects ranges of the staged records."""

from itertools import pairwise

import pytest

from pipeline.replay.point_in_time import clip_links, offset_for_time, select_ranges
from pipeline.replay.segment_chain import SegmentChain
from schemas.errors.lake import StageIncompleteError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.point_in_time import ReplayRange, Selection
from schemas.replay.slot_work import ChainLink, PartitionWork, Progress
from schemas.staging.segment import Segment
from tests.support.staged_lake import batch_of, row

ORDERS = SourcePartition("orders", "life1", 0)

TIMES = {0: 100, 1: 300, 2: 200, 3: 400, 4: 400, 5: 500}
"""Timestamps by offset; the record at offset 2 is late: older than the one before it."""


def segment(source, start, end, *, staged_at_ms=1):
    times = [TIMES.get(i, 1000 + i) for i in range(start, end)]
    return Segment(
        source.topic, source.topic_id, source.partition, start, end, end - start, 0, start,
        end - 1, min(times), max(times), 0, 0, end, end, "", "", staged_at_ms, 1,
    )  # fmt: skip


def read(of):
    yield batch_of(
        row(of.source, i, timestamp_ms=TIMES.get(i, 1000 + i)) for i in range(of.start, of.end)
    )


STAGED = [
    segment(ORDERS, 0, 3, staged_at_ms=10),
    segment(ORDERS, 3, 6, staged_at_ms=20),
    segment(ORDERS, 6, 9, staged_at_ms=30),
]


def found(segments=STAGED, *, kept=None, **wanted):
    ranges = select_ranges(segments, Selection(**wanted), lambda _: kept, read)
    return [(each.incarnation, each.start, each.end) for each in ranges]


@pytest.mark.parametrize(
    ("wanted", "range_"),
    [
        pytest.param({}, (0, 9), id="all"),
        pytest.param({"as_of_ms": 20}, (0, 6), id="staged at that time"),
        pytest.param({"as_of_ms": 29}, (0, 6), id="not what was staged later"),
        pytest.param({"from_offset": 2, "to_offset": 7}, (2, 7), id="by offset"),
        pytest.param({"to_offset": 100}, (0, 9), id="at most to the staged end"),
        pytest.param({"from_time_ms": 200}, (1, 9), id="the first by offset, not by time"),
        pytest.param({"from_time_ms": 300, "to_time_ms": 500}, (1, 5), id="by time"),
        pytest.param({"to_time_ms": 9999}, (0, 9), id="a time that is not reached"),
        pytest.param({"kept": 4}, (4, 9), id="what retention kept"),
    ],
)
def test_a_selection_is_a_range_of_offsets(wanted, range_):
    assert found(**wanted) == [("life1", *range_)]


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param({"as_of_ms": 9}, id="before anything was staged"),
        pytest.param({"from_time_ms": 9999}, id="after everything"),
        pytest.param({"from_offset": 7, "to_offset": 7}, id="an empty range"),
        pytest.param({"partition": 1}, id="an unknown partition"),
        pytest.param({"from_time_ms": 500, "to_time_ms": 300}, id="the end is before the start"),
    ],
)
def test_a_selection_without_records_has_no_range(wanted):
    assert found(**wanted) == []


def test_incarnations_are_in_order_and_offset_bounds_select_the_newest():
    second = SourcePartition("orders", "life2", 0)
    staged = [*STAGED, segment(second, 0, 4, staged_at_ms=40)]

    assert found(staged) == [("life1", 0, 9), ("life2", 0, 4)]
    assert found(staged, from_offset=2) == [("life2", 2, 4)]
    assert found(staged, as_of_ms=30) == [("life1", 0, 9)]


def test_a_time_selects_the_first_offset_with_that_timestamp_or_later_as_in_kafka():
    for at_ms in range(0, 600, 50):
        expected = next((i for i in range(9) if TIMES.get(i, 1000 + i) >= at_ms), None)

        assert offset_for_time(STAGED, at_ms, read) == expected


def count(source, edges, total):
    """Count like the stage does if it holds every offset."""
    return [max(0, b - a) for a, b in pairwise(edges)]


def chain(links):
    work = PartitionWork(ORDERS.topic_partition, TopicPartition("again", 0), "id", links, None)
    return SegmentChain(work, Progress(links[0].start, "life1", "id"), count)


def test_links_are_cut_only_at_the_bounds_of_the_range():
    assert clip_links(STAGED, [ReplayRange(0, "life1", 1, 8)], count) == (
        ChainLink("life1", 1, 3, 2),
        ChainLink("life1", 3, 6, 3),
        ChainLink("life1", 6, 8, 2),
    )


def test_a_cut_link_whose_segment_has_lost_records_is_an_error():
    with pytest.raises(StageIncompleteError, match="not all of the 3 records"):
        clip_links(STAGED, [ReplayRange(0, "life1", 1, 8)], lambda *_: [0, 0, 0])


@pytest.mark.parametrize("bound", ["from_time_ms", "to_time_ms"])
def test_a_time_in_a_segment_that_has_lost_records_is_an_error(bound):
    def damaged(segment):
        return (batch.slice(1) for batch in read(segment))

    with pytest.raises(StageIncompleteError, match="not all of the 3 records"):
        select_ranges(STAGED, Selection(**{bound: 400}), lambda _: None, damaged)


def test_a_cut_link_counts_the_records_in_its_range():
    following = chain(clip_links(STAGED, [ReplayRange(0, "life1", 1, 8)], count))
    sent = following.follow(ORDERS, batch_of(row(ORDERS, i) for i in range(1, 9)))

    following.finish()

    assert sent.column("offset").to_pylist() == list(range(1, 8))


def test_a_whole_link_in_a_cut_chain_still_counts_its_records():
    following = chain(clip_links(STAGED, [ReplayRange(0, "life1", 1, 8)], count))

    with pytest.raises(StageIncompleteError, match="3 records"):
        following.follow(ORDERS, batch_of(row(ORDERS, i) for i in (1, 2, 3, 5, 6)))


def test_segments_staged_after_the_clock_was_set_back_leave_no_hole():
    staged = [
        segment(ORDERS, 0, 3, staged_at_ms=100),
        segment(ORDERS, 3, 6, staged_at_ms=20),  # the clock was set back
        segment(ORDERS, 6, 9, staged_at_ms=120),
    ]

    assert found(staged, as_of_ms=50) == []
    assert found(staged, as_of_ms=110) == [("life1", 0, 6)]
