"""Files and frontiers of the staged log change in one commit, or not at all."""

from dataclasses import replace

import pytest
from deltalake import DeltaTable

from pipeline.record_digest import Digest
from resources.delta.arrow_schema import arrow_schema
from resources.delta.records_table import RecordsTable
from resources.delta.stage_writer import RecordsDirectory
from schemas.errors.lake import LakeFormatError, StalePlanError
from schemas.kafka.partition import SourcePartition
from schemas.staging.segment import FOREIGN_SEQUENCE, Segment
from schemas.tables import RECORDS
from tests.support.fake_cluster import RecordContent, rows

ORDERS = SourcePartition("orders", "life1", 0)
USERS = SourcePartition("users", "life1", 0)


@pytest.fixture
def records(tmp_path):
    table = RecordsTable(tmp_path / "records")
    table.refresh()
    return table


def again(records):
    return RecordsTable(records.path)


def segment(start, end, count=0, partition=ORDERS):
    return Segment(
        topic=partition.topic, topic_id=partition.topic_id, partition=partition.partition,
        start=start, end=end, count=count, size_bytes=count, first=None, last=None,
        min_timestamp_ms=None, max_timestamp_ms=None, leader_epoch=0, low=0, stable=end, high=end,
        gap_cause="", digest=Digest().hexdigest(), staged_at_ms=1, sequence=1,
    )  # fmt: skip


def file(records, *offsets, slots=(3,), sequence=1, partition=ORDERS):
    with RecordsDirectory(records.path).records_file(sequence) as made:
        for slot in slots:
            made.write(slot, rows(partition, [(o, RecordContent(b"%d" % o)) for o in offsets]))
        return made.close()


def stage(records, start, end, offsets, planned="start"):
    expected = start if planned == "start" else planned
    return records.stage(
        [file(records, *offsets, sequence=records.version + 1)],
        [segment(start, end, len(offsets))],
        {ORDERS: expected},
    )


def offsets(records):
    return sorted(records.rows()["offset"].to_pylist())


def test_records_and_frontier_are_committed_together(records):
    version = stage(records, 0, 5, [0, 1, 4], planned=None)

    seen = again(records)
    assert (seen.version, seen.frontier(ORDERS)) == (version, 5)
    assert offsets(seen) == [0, 1, 4]
    assert set(seen.rows()["slot"].to_pylist()) == {3}
    assert seen.frontier(USERS) is None


def test_a_plan_from_an_outdated_frontier_is_rejected_and_nothing_is_committed(records):
    stage(records, 0, 5, [0], planned=None)
    version = records.version

    with pytest.raises(StalePlanError, match="orders/life1/0 is at 5, not at 3"):
        stage(records, 3, 8, [6])

    assert again(records).version == version
    assert offsets(again(records)) == [0]


def test_a_partition_that_was_staged_meanwhile_is_rejected_as_new(records):
    stage(records, 0, 5, [0], planned=None)

    with pytest.raises(StalePlanError):
        stage(again(records), 0, 5, [0], planned=None)

    assert offsets(again(records)) == [0]


def test_frontiers_are_compared_unless_the_version_is_known(records):
    known = stage(records, 0, 5, [0], planned=None)
    again(records).append([], txn_versions={ORDERS.app_id: 9})

    with pytest.raises(StalePlanError, match="at 9"):
        records.stage([], [segment(5, 6)], {ORDERS: 5}, known_version=known)


def test_of_two_writers_with_the_same_plan_one_fails_and_records_are_committed_once(records):
    stage(records, 0, 5, [0], planned=None)
    other = again(records)
    other.refresh()
    stage(records, 5, 7, [5, 6])

    with pytest.raises(StalePlanError):
        stage(other, 5, 7, [5, 6])

    assert offsets(again(records)) == [0, 5, 6]
    assert other.frontier(ORDERS) == 7


class RacedRecords(RecordsTable):
    """Another process commits between this one's comparison and its commit."""

    def check_txn_versions(self, expected):
        super().check_txn_versions(expected)
        other = RecordsTable(self.path)
        other.stage([file(other, 5)], [segment(5, 6, 1)], {ORDERS: 5})


def test_a_concurrent_commit_after_the_comparison_makes_the_commit_fail(records):
    stage(records, 0, 5, [0], planned=None)
    raced = RacedRecords(records.path)

    with pytest.raises(StalePlanError):
        stage(raced, 5, 6, [5])

    assert offsets(again(records)) == [0, 5]
    assert again(records).frontier(ORDERS) == 6


def test_a_range_of_transaction_markers_advances_the_frontier_without_a_file(records):
    stage(records, 0, 5, [0], planned=None)

    records.stage([], [segment(5, 9)], {ORDERS: 5})

    assert again(records).frontier(ORDERS) == 9
    assert len(again(records).files()) == 1


def test_the_frontier_of_an_empty_partition_is_committed(records):
    records.stage([], [segment(0, 0)], {ORDERS: None})

    assert again(records).frontier(ORDERS) == 0


def test_many_frontiers_advance_in_one_commit(records):
    before = records.version

    records.stage(
        [file(records, 0), file(records, 3, partition=USERS, slots=(4,))],
        [segment(0, 1, 1), segment(0, 4, 1, USERS)],
        {ORDERS: None, USERS: None},
        other_txn_versions={"orders": 2},
    )

    seen = again(records)
    assert seen.version == before + 1
    assert (seen.frontier(ORDERS), seen.frontier(USERS), seen.txn_version("orders")) == (1, 4, 2)


def test_files_are_in_order_of_sequence_and_have_their_slots(records):
    parts = [((1,), 12), ((0, 1, 15), 9), ((0,), 30), ((1,), 100)]
    files = [file(records, i, slots=slots, sequence=n) for i, (slots, n) in enumerate(parts)]
    records.stage(files, [segment(0, 4, 4)], {ORDERS: None})

    found = again(records).files()

    slots = [[slot for slot in range(16) if f.has_slot(slot)] for f in found]
    assert [f.sequence for f in found] == [9, 12, 30, 100]
    assert slots == [[0, 1, 15], [1], [0], [1]]


def test_paths_from_a_sequence_on_are_returned_in_order(records):
    parts = [((1, 2), 12), ((1,), 9), ((0,), 30), ((1,), 100), ((2,), 5)]
    files = [file(records, i, slots=slots, sequence=n) for i, (slots, n) in enumerate(parts)]
    records.stage(files, [segment(0, 5, 5)], {ORDERS: None})

    found = again(records).paths_from({1: 10, 0: 31, 2: 0})

    at_12, _, _, at_100, at_5 = (each.path for each in files)
    assert found == {1: [at_12, at_100], 0: [], 2: [at_5, at_12]}


def test_a_file_that_another_program_wrote_may_have_every_slot_and_is_in_no_paths(records):
    ours = file(records, 0, slots=(1,), sequence=3)
    foreign = replace(ours, path="part-00000-1234-c000.snappy.parquet")
    records.stage([ours, foreign], [segment(0, 1, 1)], {ORDERS: None})

    seen = again(records)

    assert seen.paths_from({1: 0}) == {1: [ours.path]}
    first, _ = seen.files()
    assert (first.path, first.sequence) == (foreign.path, FOREIGN_SEQUENCE)
    assert all(first.has_slot(slot) for slot in range(16))


def test_replaced_files_keep_the_same_records(records):
    stage(records, 0, 5, [0, 1], planned=None)
    stage(records, 5, 7, [5, 6])
    joined = file(records, 0, 1, 5, 6, sequence=9)

    records.replace(records.files(), [joined])

    seen = again(records)
    assert [f.path for f in seen.files()] == [joined.path]
    assert offsets(seen) == [0, 1, 5, 6]
    assert seen.frontier(ORDERS) == 7


def test_files_that_another_process_replaced_are_not_replaced_again(records):
    stage(records, 0, 5, [0, 1], planned=None)
    old = records.files()
    other = again(records)
    other.refresh()
    records.replace(old, [file(records, 0, 1, sequence=2)])

    with pytest.raises(StalePlanError, match="was replaced by another process"):
        other.replace(old, [file(records, 0, 1, sequence=2)])

    assert offsets(again(records)) == [0, 1]


def test_retention_commits_the_first_kept_offset_together_with_the_removal(records):
    stage(records, 0, 5, [0, 1], planned=None)
    stage(records, 5, 7, [5, 6])

    records.drop(records.files()[:1], {ORDERS: 5})

    seen = again(records)
    assert offsets(seen) == [5, 6]
    assert seen.retained_from(ORDERS) == 5
    assert seen.frontier(ORDERS) == 7


def test_deltalake_reads_the_bounds_and_the_record_count_of_a_file(records):
    staged = file(records, 1, 4, slots=(3, 7), partition=USERS)
    records.stage([staged], [], {})

    actions = again(records).delta.get_add_actions(flatten=True)
    found = {name: actions.column(name)[0].as_py() for name in actions.schema.names}
    assert (found["path"], found["num_records"]) == (staged.path, 4)
    assert (found["min.slot"], found["max.slot"]) == (3, 7)
    assert (found["min.topic"], found["max.topic"]) == ("users", "users")
    assert (found["min.offset"], found["max.offset"]) == (1, 4)


def test_a_lake_of_an_older_version_is_refused(tmp_path):
    path = tmp_path / "records"
    properties = {"delta.appendOnly": "false"}
    DeltaTable.create(
        str(path), arrow_schema(RECORDS), partition_by=["slot"], configuration=properties
    )
    older = RecordsTable(path)

    for use in (older.refresh, older.rows, older.files, lambda: older.stage([], [], {})):
        with pytest.raises(LakeFormatError, match=r"has format 1, but .* needs format 2"):
            use()
    assert DeltaTable(str(path)).version() == 0
