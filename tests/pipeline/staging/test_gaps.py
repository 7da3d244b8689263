"""`accept-gap` records segments for the gaps that an operator accepts."""

import pytest

from pipeline.staging.gaps import accept_gap, frontier_after
from pipeline.staging.plan import plan_ranges
from schemas.errors.source import (
    LogTruncatedError,
    RangeUnfinishedError,
    RecordsExpiredError,
    TopicDeletedError,
    TopicRecreatedError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.staging.frontier import Frontier, PartitionSnapshot

ORDERS = TopicPartition("orders", 0)
FRONTIER = Frontier(SourcePartition("orders", "life1", 0), 50, 5, 70)


def snapshot(low, stable, topic_id="life1"):
    return PartitionSnapshot(topic_id, Watermarks(low, stable, stable, 9))


def one(error, seen):
    (segment,) = accept_gap(error, FRONTIER, seen, 1_234, 8)
    return segment


def next_after(segment, seen):
    """Return the plan after *segment* is committed."""
    planned = plan_ranges({ORDERS: seen}, {ORDERS: frontier_after(segment)}, 1_000)
    assert not planned.partition_errors
    (found,) = planned.ranges
    return found


def test_expired_records_are_a_gap_up_to_the_log_start_where_staging_resumes():
    seen = snapshot(60, 90)
    segment = one(RecordsExpiredError(ORDERS, wanted=50, low=60), seen)

    assert (segment.start, segment.end, segment.count) == (50, 60, 0)
    assert segment.gap_cause == "expired, accepted"
    assert (next_after(segment, seen).start, next_after(segment, seen).leader_epoch) == (60, 5)


def test_records_that_expired_during_reading_are_a_gap_up_to_the_newer_log_start():
    segment = one(RecordsExpiredError(ORDERS, wanted=50, low=60), snapshot(0, 90))

    assert (segment.start, segment.end) == (50, 60)


def test_the_gap_of_a_re_created_topic_ends_at_the_previous_incarnations_last_known_lso():
    seen = snapshot(0, 9, "life2")
    segment = one(TopicRecreatedError(ORDERS, frontier=50, end=70), seen)

    assert (segment.topic_id, segment.start, segment.end) == ("life1", 50, 70)
    follows = next_after(segment, seen)
    assert (follows.partition.topic_id, follows.start, follows.planned_start) == ("life2", 0, None)


def test_the_gap_of_a_deleted_topic_ends_at_its_last_known_lso_and_no_other_is_accepted():
    deleted = TopicDeletedError(ORDERS, frontier=50, end=70)
    (segment,) = accept_gap(deleted, FRONTIER, None, 1_234, 8)

    assert (segment.topic_id, segment.start, segment.end) == ("life1", 50, 70)
    assert segment.gap_cause == "deleted before it was staged, accepted"
    assert accept_gap(LogTruncatedError(ORDERS, staged=50, end=30), FRONTIER, None, 1_234, 8) == []


def test_a_truncated_log_becomes_a_new_incarnation_from_its_log_start():
    seen = snapshot(10, 30)
    segment = one(LogTruncatedError(ORDERS, staged=50, end=30), seen)

    assert (segment.topic_id, segment.start, segment.end) == ("life1+1", 10, 10)
    follows = next_after(segment, seen)
    assert follows.partition == SourcePartition("orders", "life1+1", 0)
    assert (follows.start, follows.end, follows.leader_epoch) == (10, 30, None)


def test_a_log_truncated_twice_becomes_a_second_new_incarnation():
    again = Frontier(SourcePartition("orders", "life1+1", 0), 50, 5, 50)

    (segment,) = accept_gap(
        LogTruncatedError(ORDERS, staged=50, end=30), again, snapshot(10, 30), 1_234, 8
    )

    assert segment.topic_id == "life1+2"


@pytest.mark.parametrize("error", [RangeUnfinishedError(ORDERS, at=50, end=90, reason="slow")])
def test_an_error_that_is_no_gap_cannot_be_accepted(error):
    assert accept_gap(error, FRONTIER, snapshot(0, 90), 1_234, 8) == []
