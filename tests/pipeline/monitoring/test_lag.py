"""Lag and age count only records that can still be replicated, and are never negative."""

import pyarrow as pa
import pytest

from pipeline.monitoring.lag import (
    StagedEnd,
    age_ms,
    consumer_lag,
    newest_staged,
    oldest_waiting_ms,
    replication_lag,
)
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks

ORDERS = SourcePartition("orders", "life1", 0)
AGAIN = SourcePartition("orders", "life2", 0)


def segments(*rows):
    names = ["topic_id", "start", "end", "min_timestamp_ms", "stable", "version"]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    table = pa.table(
        {"topic": ["orders"] * len(rows), "partition": pa.array([0] * len(rows), pa.int32())}
        | columns
    )
    at = table.schema.get_field_index("min_timestamp_ms")
    return table.set_column(at, "min_timestamp_ms", table["min_timestamp_ms"].cast(pa.int64()))


def staged(begin, end):
    return StagedEnd(ORDERS, begin, end, end)


@pytest.mark.parametrize(
    ("source", "stage", "replayed", "lag"),
    [
        pytest.param((0, 10), None, 0, 10, id="nothing is staged yet"),
        pytest.param((4, 10), None, 0, 6, id="expired before staging: not lag"),
        pytest.param((0, 10), (0, 6), 2, 8, id="partly staged, partly replayed"),
        pytest.param((8, 10), (0, 8), 2, 8, id="expired after staging: lag"),
        pytest.param((0, 10), (5, 10), 0, 5, id="staging began in the middle of the log"),
        pytest.param((0, 10), (0, 10), 10, 0, id="all is replayed"),
        pytest.param((0, 10), (0, 12), 12, 0, id="progress is newer than the source's end"),
        pytest.param(None, (0, 10), 4, 6, id="source down: staged offsets count"),
        pytest.param(None, None, 0, 0, id="source down, nothing staged"),
    ],
)
def test_lag_is_the_number_of_offsets_not_yet_replicated(source, stage, replayed, lag):
    marks = source and Watermarks(source[0], source[1], source[1])

    assert replication_lag(marks, stage and staged(*stage), replayed) == lag


def test_a_group_that_committed_past_the_known_end_has_no_lag():
    assert consumer_lag(10, 4) == 6
    assert consumer_lag(10, 12) == 0


def test_the_newest_incarnation_is_the_one_that_was_staged_last():
    table = segments(
        ("life1", 0, 50, 1, 50, 1), ("life2", 0, 3, 1, 3, 2), ("life2", 3, 9, 1, 11, 3)
    )

    assert newest_staged(table) == {TopicPartition("orders", 0): StagedEnd(AGAIN, 0, 9, 11)}


def test_the_oldest_waiting_timestamp_is_that_of_records_not_yet_replayed():
    table = segments(
        ("life1", 0, 5, 100, 5, 1),
        ("life1", 5, 9, 300, 9, 2),
        ("life1", 9, 12, 200, 12, 3),
        ("life2", 0, 9, 50, 9, 4),
    )

    assert oldest_waiting_ms(table, {ORDERS: 5}) == {ORDERS: 200}
    assert oldest_waiting_ms(table, {ORDERS: 3}) == {ORDERS: 100}
    assert oldest_waiting_ms(table, {ORDERS: 12}) == {}
    assert oldest_waiting_ms(table, {}) == {}


def test_records_without_a_timestamp_have_no_age():
    table = segments(("life1", 0, 5, -1, 5, 1), ("life1", 5, 6, None, 6, 1))

    assert oldest_waiting_ms(table, {ORDERS: 0}) == {}


@pytest.mark.parametrize(
    ("oldest", "lag", "age"),
    [
        pytest.param(400, 3, 600, id="a record waits"),
        pytest.param(400, 0, 0, id="nothing waits"),
        pytest.param(None, 3, None, id="the waiting record is not staged: unknown"),
        pytest.param(5000, 3, 0, id="a producer's clock is ahead"),
    ],
)
def test_age_is_the_time_that_the_oldest_record_has_waited(oldest, lag, age):
    assert age_ms(1000, oldest, lag) == age
