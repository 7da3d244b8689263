"""The plan of the ranges to stage, and of the partitions that need an operator."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.staging.plan import SMALL_TICK_BYTES, assign_ranges, plan_ranges
from schemas.errors.source import LogTruncatedError, RecordsExpiredError, TopicRecreatedError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.staging.frontier import Frontier, PartitionSnapshot
from schemas.staging.read_range import OffsetRange

ORDERS = TopicPartition("orders", 0)


def snapshot(low, stable, high=None, *, topic_id="life1"):
    return PartitionSnapshot(topic_id, Watermarks(low, stable, high or stable, 7))


def staged(next_offset, *, topic_id="life1", last_stable=0, epoch=5):
    source = SourcePartition("orders", topic_id, 0)
    return Frontier(source, next_offset, epoch, last_stable)


def only_range(seen, frontier=None, max_records=1_000):
    frontiers = {} if frontier is None else {ORDERS: frontier}
    planned = plan_ranges({ORDERS: seen}, frontiers, max_records)
    assert not planned.partition_errors
    (found,) = planned.ranges
    return found


def only_error(seen, frontier):
    planned = plan_ranges({ORDERS: seen}, {ORDERS: frontier}, 1_000)
    assert planned.ranges == ()
    return planned.partition_errors[ORDERS]


def test_a_new_partition_starts_at_the_log_start():
    found = only_range(snapshot(40, 90))

    assert (found.start, found.end, found.planned_start) == (40, 90, None)
    assert found.partition == SourcePartition("orders", "life1", 0)


def test_a_new_partition_without_records_gets_an_empty_range():
    found = only_range(snapshot(40, 40))

    assert (found.start, found.end, found.planned_start) == (40, 40, None)


def test_a_range_goes_from_the_frontier_to_the_last_stable_offset_with_its_epoch():
    found = only_range(snapshot(0, 90, high=120), staged(50))

    assert (found.start, found.end, found.planned_start) == (50, 90, 50)
    assert found.leader_epoch == 5


def test_a_partition_staged_to_its_end_gets_no_range():
    assert plan_ranges({ORDERS: snapshot(0, 90)}, {ORDERS: staged(90)}, 1_000).ranges == ()


def test_a_last_stable_offset_below_the_frontier_gives_no_range_and_no_error():
    assert plan_ranges({ORDERS: snapshot(0, 80, high=90)}, {ORDERS: staged(85)}, 1_000).ranges == ()


def test_a_frontier_at_the_log_start_has_no_expired_records():
    assert only_range(snapshot(50, 90), staged(50)).start == 50


def test_a_log_start_above_the_frontier_is_an_error_with_the_expired_interval():
    error = only_error(snapshot(60, 90), staged(50))

    assert isinstance(error, RecordsExpiredError)
    assert "orders[0]: records [50, 60) expired" in str(error)


def test_a_log_end_below_the_frontier_is_a_truncation_error_with_both_numbers():
    error = only_error(snapshot(0, 30), staged(50))

    assert isinstance(error, LogTruncatedError)
    assert "staged up to 50" in str(error)
    assert "records [30, 50) are gone" in str(error)
    assert "ends at 30" in str(error)


def test_a_re_created_topic_starts_at_its_log_start_if_the_previous_one_was_fully_staged():
    found = only_range(snapshot(3, 9, topic_id="life2"), staged(50, last_stable=50))

    assert found.partition.topic_id == "life2"
    assert (found.start, found.end, found.planned_start, found.leader_epoch) == (3, 9, None, None)


def test_a_re_created_topic_is_an_error_if_the_previous_one_was_not_fully_staged():
    error = only_error(snapshot(0, 9, topic_id="life2"), staged(50, last_stable=70))

    assert isinstance(error, TopicRecreatedError)
    assert "[50, 70)" in str(error)


def test_an_incarnation_after_a_truncation_belongs_to_the_same_topic():
    found = only_range(snapshot(0, 9), staged(4, topic_id="life1+1"))

    assert found.partition.topic_id == "life1+1"
    assert found.start == 4


def test_a_failing_partition_does_not_stop_the_others():
    other = TopicPartition("users", 1)

    planned = plan_ranges(
        {ORDERS: snapshot(60, 90), other: snapshot(0, 5)}, {ORDERS: staged(50)}, 1_000
    )

    assert list(planned.partition_errors) == [ORDERS]
    assert [r.partition.topic_partition for r in planned.ranges] == [other]


def test_ranges_above_the_bound_are_clipped_evenly_and_small_ranges_stay_whole():
    seen = {TopicPartition("t", i): snapshot(0, end) for i, end in enumerate((10, 1_000, 1_000))}

    planned = plan_ranges(seen, {}, 210)

    assert [r.length for r in planned.ranges] == [10, 100, 100]


@given(
    st.dictionaries(st.integers(0, 30), st.integers(1, 10_000), min_size=1), st.integers(31, 5_000)
)
def test_ranges_never_span_more_than_the_bound_and_each_gets_a_share(lengths, max_records):
    seen = {TopicPartition("t", i): snapshot(0, end) for i, end in lengths.items()}

    planned = plan_ranges(seen, {}, max_records)

    assert len(planned.ranges) == len(lengths)
    assert sum(r.length for r in planned.ranges) <= max_records
    assert all(1 <= r.length <= lengths[r.partition.partition] for r in planned.ranges)


def test_with_more_partitions_than_the_bound_each_gets_one_offset():
    seen = {TopicPartition("t", i): snapshot(0, 100) for i in range(5)}

    assert [r.length for r in plan_ranges(seen, {}, 2).ranges] == [1] * 5


RANGES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "orders", "users"]), st.integers(0, 40)),
    unique=True,
    max_size=60,
)


def range_of(topic, partition, length):
    source = SourcePartition(topic, "x", partition)
    return OffsetRange(source, 0, length, 0, None, Watermarks(0, length, length))


@given(RANGES, st.integers(1, 8), st.sampled_from([1.0, float(SMALL_TICK_BYTES)]))
def test_no_range_is_lost_and_the_ranges_of_a_slot_are_staged_by_one_worker(
    partitions, workers, bytes_per_offset
):
    ranges = [range_of(t, p, p) for t, p in partitions]

    assigned = assign_ranges(ranges, workers, bytes_per_offset)

    slots = [{r.partition.slot for r in each} for each in assigned.values()]
    assert set(assigned) <= set(range(workers))
    assert all(assigned.values())
    assert sum(map(len, slots)) == len(set().union(*slots))
    assert sorted(r.partition for each in assigned.values() for r in each) == sorted(
        r.partition for r in ranges
    )


@given(st.integers(1, 8))
def test_a_slot_is_staged_by_the_same_worker_in_each_large_tick(workers):
    ranges = [range_of("orders", p, 1) for p in range(20)]

    assigned = assign_ranges(ranges, workers, SMALL_TICK_BYTES)

    assert set(assigned) == set(range(workers))
    assert all(
        r.partition.slot % workers == number for number, each in assigned.items() for r in each
    )


def test_a_tick_of_less_than_the_bound_of_bytes_is_staged_by_one_worker():
    ranges = [range_of("orders", p, 1_000) for p in range(4)]
    bound = SMALL_TICK_BYTES / 4_000

    assert assign_ranges(ranges, 2, bound - 1) == {0: ranges}
    assert set(assign_ranges(ranges, 2, bound)) == {0, 1}


def test_with_latest_a_new_topic_begins_at_its_last_stable_offset():
    [planned] = plan_ranges({ORDERS: snapshot(5, 90)}, {}, 1_000, from_latest=True).ranges

    assert (planned.start, planned.end, planned.planned_start) == (90, 90, None)


def test_with_latest_a_partition_added_to_a_known_topic_begins_at_its_first_record():
    added = TopicPartition(ORDERS.topic, 7)
    seen = {ORDERS: snapshot(0, 90), added: snapshot(0, 5)}

    planned = plan_ranges(seen, {ORDERS: staged(90)}, 1_000, from_latest=True)

    assert [(r.start, r.end) for r in planned.ranges] == [(0, 5)]
