"""Know where the map of each target partition ends, without reading the map's rows."""

import pytest

from deltamirror.replay.offset_map import LastRecord, OffsetMap, map_rows
from resources.delta.lake import DeltaLake
from schemas.errors.lake import TableDamagedError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import CommittedBatch, MapEnd, Progress
from tests.support.lake import FLOW

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 1)


@pytest.fixture
def table(lake):
    return DeltaLake(lake).offset_map(FLOW)


def remote(partition):
    return TopicPartition(f"us-east.{partition.topic}", partition.partition)


def batch(partition, start, end, downstream, *, incarnation="a", target_id="t1", runs=None):
    """Return a batch of the records `[start, end)` of *partition*, the first at *downstream*."""
    after = Progress(end, incarnation, target_id)
    before = Progress(start, incarnation, target_id) if start else None
    if runs is None:
        runs = (OffsetRun(start, downstream, end - start),)
    return CommittedBatch(partition, remote(partition), before, after, runs, end - start)


def loaded(table):
    """Return the map of another process, with its ends read."""
    found = OffsetMap(DeltaLake(table.path.parents[2]).offset_map(FLOW), "other")
    found.load_ends()
    return found


def delete_files(table):
    for path in table.path.glob("*.parquet"):
        path.unlink()


def append_rows(table, *batches):
    """Append the rows of *batches* and their progress, as versions without txn versions of ends."""
    for each in batches:
        after = each.after
        target = f"{each.target.topic}/{after.target_topic_id}/{each.target.partition}"
        progress = {f"{target}/{after.incarnation}": after.next_offset}
        table.append(map_rows(each, "r", 1), txn_versions=progress)


def test_the_ends_of_a_map_are_known_without_its_rows(table):
    offset_map = OffsetMap(table, "r")
    offset_map.load_ends()
    offset_map.write([batch(ORDERS, 0, 5, 0), batch(USERS, 0, 2, 7)])
    offset_map.write([batch(ORDERS, 5, 8, 6)])
    offset_map.write([batch(ORDERS, 0, 3, 10, incarnation="b")])
    delete_files(table)

    found = loaded(table)

    at_orders = found.end(remote(ORDERS), "t1", ["a", "b"])
    assert at_orders == MapEnd(Progress(3, "b", "t1"), downstream_end=13)
    assert found.end(remote(USERS), "t1", ["a"]) == MapEnd(Progress(2, "a", "t1"), downstream_end=9)
    assert found.newest_topic_id(remote(USERS)) == "t1"
    assert found.newest_progress(remote(ORDERS), ["a", "b"]) == Progress(3, "b", "t1")


def test_a_batch_without_records_does_not_move_the_end_downstream(table):
    offset_map = OffsetMap(table, "r")
    offset_map.load_ends()
    offset_map.write([batch(ORDERS, 0, 5, 0)])
    offset_map.write([batch(ORDERS, 5, 9, 0, runs=())])
    delete_files(table)

    end = loaded(table).end(remote(ORDERS), "t1", ["a"])

    assert end == MapEnd(Progress(9, "a", "t1"), downstream_end=5)


def test_rows_that_are_not_in_order_do_not_move_an_end_back(table):
    offset_map = OffsetMap(table, "r")
    offset_map.load_ends()
    offset_map.write([batch(ORDERS, 0, 5, 4, runs=(OffsetRun(3, 7, 2),))])
    missing = batch(ORDERS, 5, 5, 4, runs=(OffsetRun(0, 4, 3),))
    offset_map.write([missing], is_in_order=False)
    delete_files(table)

    end = loaded(table).end(remote(ORDERS), "t1", ["a"])

    assert end == MapEnd(Progress(5, "a", "t1"), downstream_end=9)


def test_what_is_reached_of_an_incarnation_is_the_smallest_of_all_target_incarnations(table):
    offset_map = OffsetMap(table, "r")
    offset_map.load_ends()
    offset_map.write([batch(ORDERS, 0, 5, 0)])
    offset_map.write([batch(ORDERS, 0, 3, 0, target_id="t2")])
    offset_map.write([batch(ORDERS, 0, 2, 3, incarnation="b", target_id="t2")])
    delete_files(table)

    found = loaded(table)

    assert found.reached(remote(ORDERS), "a") == 3
    assert found.reached(remote(ORDERS), "b") == 2
    assert found.reached(remote(ORDERS), "c") is None
    assert found.reached(remote(USERS), "a") is None
    assert found.former_topic_ids(remote(ORDERS), "t2") == {"t1"}


def test_ends_that_no_txn_version_has_are_read_from_the_rows(table):
    append_rows(table, batch(ORDERS, 0, 5, 0), batch(USERS, 0, 2, 7), batch(ORDERS, 5, 8, 6))

    found = loaded(table)

    at_orders = found.end(remote(ORDERS), "t1", ["a"])
    assert at_orders == MapEnd(Progress(8, "a", "t1"), downstream_end=9)
    assert found.end(remote(USERS), "t1", ["a"]) == MapEnd(Progress(2, "a", "t1"), downstream_end=9)
    assert found.last_record(remote(ORDERS)) == LastRecord("a", "t1", 7, 8)
    delete_files(table)
    with pytest.raises(TableDamagedError):
        loaded(table)


def test_the_first_flush_after_ends_were_read_from_rows_writes_all_ends(table):
    append_rows(table, batch(ORDERS, 0, 5, 0), batch(ORDERS, 0, 3, 0, target_id="t2"))
    offset_map = OffsetMap(table, "r")
    offset_map.load_ends()

    offset_map.write([batch(USERS, 0, 2, 7)])
    delete_files(table)

    found = loaded(table)
    assert found.end(remote(ORDERS), "t1", ["a"]).downstream_end == 5
    assert found.end(remote(ORDERS), "t2", ["a"]).downstream_end == 3
    assert found.last_record(remote(ORDERS)) is None
    assert found.end(remote(USERS), "t1", ["a"]).downstream_end == 9


def test_ends_of_only_some_partitions_are_not_used(table):
    append_rows(table, batch(ORDERS, 0, 5, 0))
    # The end of users as a flush writes it, without the mark that all ends are written.
    table.append(
        map_rows(batch(USERS, 0, 2, 7), "r", 2), txn_versions={"end:us-east.users/t1/1": 9}
    )

    found = loaded(table)

    assert found.newest_topic_id(remote(ORDERS)) == "t1"
    assert found.newest_topic_id(remote(USERS)) == "t1"


def test_a_flush_after_all_ends_are_written_writes_only_those_that_moved(table):
    offset_map = OffsetMap(table, "r")
    offset_map.load_ends()
    offset_map.write([batch(ORDERS, 0, 5, 0), batch(USERS, 0, 2, 7)])

    offset_map = loaded(table)
    offset_map.add([batch(ORDERS, 5, 8, 5)])

    assert offset_map._changed_ends() == {
        "end:us-east.orders/t1/0": 8,
        "upstream-end:us-east.orders/t1/0": 8,
    }
