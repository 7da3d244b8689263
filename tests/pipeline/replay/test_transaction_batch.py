"""A transaction's batch is bounded, and keeps its records' order and its partitions' progress."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.replay.transaction_batch import TransactionBatch
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import Progress
from tests.support.fake_cluster import RecordContent, rows

SOURCE = SourcePartition("orders", "life1", 0)
ORDERS, USERS = TopicPartition("us-east.orders", 0), TopicPartition("us-east.users", 0)
MANY = 10_000_000


def batch(*offsets, size=1):
    return rows(SOURCE, [(o, RecordContent(b"x" * size)) for o in offsets])


def test_a_batch_takes_at_most_its_bound_of_records():
    chunk = TransactionBatch(3, MANY)

    assert chunk.add(ORDERS, batch(5, 6), "life1", "t1") == 2
    assert chunk.add(USERS, batch(1, 2, 3), "life1", "t2") == 1
    assert chunk.is_full
    assert chunk.records == 3


def test_a_batch_is_full_at_about_its_bound_of_bytes():
    chunk = TransactionBatch(1_000, 10_000)

    taken = chunk.add(ORDERS, batch(*range(100), size=1_000), "life1", "t1")

    assert 5 <= taken <= 10


def test_a_record_larger_than_the_bound_is_a_batch_of_its_own():
    chunk = TransactionBatch(1_000, 100)

    assert chunk.add(ORDERS, batch(1, 2, size=10_000), "life1", "t1") == 1
    assert chunk.is_full


def test_progress_is_after_the_last_record_or_as_set_by_reach():
    chunk = TransactionBatch(10, MANY)
    chunk.add(ORDERS, batch(5, 9), "life1", "t1")

    assert chunk.progress == {ORDERS: Progress(10, "life1", "t1")}

    chunk.progress[ORDERS] = Progress(12, "life1", "t1")
    assert chunk.progress[ORDERS].next_offset == 12
    assert chunk.targets() == [ORDERS]


def test_offsets_are_kept_by_target_in_the_order_of_adding():
    chunk = TransactionBatch(10, MANY)
    chunk.add(ORDERS, batch(5, 6), "life1", "t1")
    chunk.add(USERS, batch(1), "life1", "t2")
    chunk.add(ORDERS, batch(8), "life1", "t1")

    assert chunk.upstream(ORDERS).tolist() == [5, 6, 8]
    assert chunk.upstream(TopicPartition("none", 0)).tolist() == []
    assert chunk.targets() == [ORDERS, USERS]


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 5_000))
def test_records_split_into_batches_are_complete_and_in_order(count, max_records, max_bytes):
    left, taken = batch(*range(count), size=100), []
    while left.num_rows:
        chunk = TransactionBatch(max_records, max_bytes)
        while left.num_rows and not chunk.is_full:
            left = left.slice(chunk.add(ORDERS, left, "life1", "t1"))
        taken += chunk.upstream(ORDERS).tolist()

    assert taken == list(range(count))
