"""What an operator's `accept-gap` puts on record."""

import pytest

from pipeline.staging.gaps import accept_gap, frontier_after
from pipeline.staging.plan import plan_ranges
from schemas.errors import (
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


def sight(low, stable, topic_id="life1"):
    return PartitionSnapshot(topic_id, Watermarks(low, stable, stable, 9))


def one(error, seen):
    (segment,) = accept_gap(error, FRONTIER, seen, 1_234, 8)
    return segment


def next_after(segment, seen):
    """Return what is planned once *segment* is committed."""
    planned = plan_ranges({ORDERS: seen}, {ORDERS: frontier_after(segment)}, 1_000)
    assert not planned.partition_errors
    (found,) = planned.ranges
    return found


def test_expired_records_are_a_gap_up_to_the_log_start_and_staging_goes_on_there():
    seen = sight(60, 90)
    segment = one(RecordsExpiredError(ORDERS, wanted=50, low=60), seen)

    assert (segment.start, segment.end, segment.count) == (50, 60, 0)
    assert segment.gap_cause == "expired, accepted"
    assert (next_after(segment, seen).start, next_after(segment, seen).leader_epoch) == (60, 5)


def test_records_that_expired_while_they_were_read_are_a_gap_up_to_the_log_start_met_then():
    segment = one(RecordsExpiredError(ORDERS, wanted=50, low=60), sight(0, 90))

    assert (segment.start, segment.end) == (50, 60)


def test_the_former_life_of_a_re_created_topic_ends_where_it_was_last_seen():
    seen = sight(0, 9, "life2")
    segment = one(TopicRecreatedError(ORDERS, frontier=50, end=70), seen)

    assert (segment.topic_id, segment.start, segment.end) == ("life1", 50, 70)
    follows = next_after(segment, seen)
    assert (follows.partition.topic_id, follows.start, follows.planned_start) == ("life2", 0, None)


def test_a_deleted_topic_ends_where_it_was_last_seen_and_nothing_else_can_be_accepted_of_it():
    deleted = TopicDeletedError(ORDERS, frontier=50, end=70)
    (segment,) = accept_gap(deleted, FRONTIER, None, 1_234, 8)

    assert (segment.topic_id, segment.start, segment.end) == ("life1", 50, 70)
    assert segment.gap_cause == "deleted before it was staged, accepted"
    assert accept_gap(LogTruncatedError(ORDERS, staged=50, end=30), FRONTIER, None, 1_234, 8) == []


def test_a_cut_log_goes_on_as_a_new_incarnation_from_what_the_source_holds():
    seen = sight(10, 30)
    segment = one(LogTruncatedError(ORDERS, staged=50, end=30), seen)

    assert (segment.topic_id, segment.start, segment.end) == ("life1+1", 10, 10)
    follows = next_after(segment, seen)
    assert follows.partition == SourcePartition("orders", "life1+1", 0)
    assert (follows.start, follows.end, follows.leader_epoch) == (10, 30, None)


def test_a_log_cut_twice_is_a_second_new_incarnation():
    again = Frontier(SourcePartition("orders", "life1+1", 0), 50, 5, 50)

    (segment,) = accept_gap(
        LogTruncatedError(ORDERS, staged=50, end=30), again, sight(10, 30), 1_234, 8
    )

    assert segment.topic_id == "life1+2"


@pytest.mark.parametrize("error", [RangeUnfinishedError(ORDERS, at=50, end=90, reason="slow")])
def test_what_is_no_gap_cannot_be_accepted(error):
    assert accept_gap(error, FRONTIER, sight(0, 90), 1_234, 8) == []
