"""Maintain a lake without changing its records."""

import dataclasses
import os
import time
from itertools import groupby

import pytest

from deltamirror.maintenance import maintain as maintain_module
from deltamirror.maintenance.maintain import compact, maintain
from deltamirror.replay.offset_map import OffsetMap
from pipeline.maintenance import compaction
from resources.coordination.lease import Lease
from resources.delta.records_table import RecordsTable
from resources.delta.stage_reader import StageReader
from schemas.errors.lake import LakeError, LeaseHeldError, StalePlanError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import CommittedBatch, Progress
from tests.support.lake import FLOW, ScriptedContext, config
from tests.support.staged_lake import held, in_one_slot, stage_records

DAY_S = 24 * 3600
A, B = in_one_slot(2)
(OTHER,) = in_one_slot(1, slot=9)
SECOND_INCARNATION = dataclasses.replace(A, topic_id="id2")


ALL = A, B, SECOND_INCARNATION, OTHER


@pytest.fixture
def context(lake):
    """Return a context with seven files of one slot, and one that two slots share."""
    context = ScriptedContext(lake)
    for i in range(7):
        stage_records(context, (A, i * 10, i * 10 + 10), (B, i * 3, i * 3 + 3), staged_at_ms=i)
    stage_records(context, (SECOND_INCARNATION, 0, 4), (OTHER, 0, 5), staged_at_ms=7)
    return context


@pytest.fixture
def records(context):
    return context.lake.records("us-east")


def join(records):
    """Compact *records* although they are few."""
    return compact(records, min_sequences=2)


def data_files(records):
    """Return the names of all files in the folder of *records*, live or not."""
    return {path.name for path in records.path.iterdir() if path.is_file()}


def keeping(context, lake, **retention):
    context.config = dataclasses.replace(config(lake), **retention)
    return context


def replay_to(context, source, offset, target_topic_id="target1"):
    """Write to the map that *source* is replayed up to *offset*."""
    partition = source.topic_partition
    target = TopicPartition(f"us-east.{partition.topic}", partition.partition)
    after = Progress(offset, source.topic_id, target_topic_id)
    offset_map = OffsetMap(context.lake.offset_map(FLOW), "run")
    move = CommittedBatch(partition, target, None, after, (OffsetRun(0, 0, offset),), offset)
    offset_map.write([move])


@pytest.fixture
def hold(records, monkeypatch):
    """Return a function that sets which rows compaction can hold in memory."""
    paths = [file.path for file in records.files()]
    _, all_rows = StageReader(records.path).measure(paths)
    bounds = {"all rows": all_rows, "one slot": all_rows - 1, "one partition": 0}
    return lambda rows: monkeypatch.setattr(maintain_module, "SORTED_BYTES", bounds[rows])


@pytest.mark.parametrize("in_memory", ["all rows", "one slot", "one partition"])
def test_compaction_changes_no_row_of_any_slot_and_sorts_them_by_partition(
    context, records, hold, in_memory
):
    hold(in_memory)
    before = held(context, *ALL)
    frontiers = {source: records.frontier(source) for source in ALL}

    assert join(records) == (8, 2)

    records.refresh()
    files = {1 << 3: [A, SECOND_INCARNATION, B], 1 << 9: [OTHER]}
    found = [(f.slots, f.sequence, f.level) for f in records.files()]
    assert found == [(slots, 8, 1) for slots in files]
    for file in records.files():
        rows = StageReader(records.path).all_rows([file.path])
        found = [source for source, _ in groupby(rows, key=lambda each: each[0])]
        assert found == sorted(files[file.slots], key=lambda source: source.topic_partition)
    assert held(context, *ALL) == before
    assert {source: records.frontier(source) for source in ALL} == frontiers


def test_maintenance_joins_small_files_until_no_run_is_left(context, records):
    (done,) = maintain(context)

    records.refresh()
    assert (done.joined, done.joined_into) == (8, len(records.files())) == (8, 2)
    assert join(records) is None


def test_few_small_files_are_not_joined_while_a_cluster_is_staged(records):
    assert compact(records) is None
    assert len(records.files()) == 8


def test_staging_continues_after_a_compaction(context):
    maintain(context)
    stage_records(context, (SECOND_INCARNATION, 4, 6))

    found = held(context, SECOND_INCARNATION)[SECOND_INCARNATION]
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 4, 5]


def test_files_are_joined_level_by_level(lake, monkeypatch):
    monkeypatch.setattr(compaction, "SEQUENCES_PER_LEVEL", (2, 2, 2))
    monkeypatch.setattr(compaction, "MIN_FILES_PER_FILE", 2)
    context, found = ScriptedContext(lake), []
    records = context.lake.records("us-east")
    for i in range(16):
        stage_records(context, (A, i, i + 1))
        while join(records):
            records.refresh()
        found.append("".join(str(file.level) for file in records.files()))

    assert found[:8] == ["0", "1", "10", "2", "20", "21", "210", "3"]
    assert found[-1] == "33"
    assert [row["offset"] for row in held(context, A)[A]] == [*range(16)]


@pytest.mark.parametrize(
    ("in_memory", "owner", "name"),
    [
        ("all rows", maintain_module, "join_batches"),
        ("all rows", maintain_module, "sort_by_partition"),
        ("one slot", maintain_module, "join_batches"),
        ("one slot", maintain_module, "sort_by_partition"),
        ("one partition", StageReader, "sources"),
        ("one partition", StageReader, "rows"),
    ],
)
def test_a_compaction_that_loses_rows_commits_nothing_and_leaves_no_file(
    records, monkeypatch, hold, in_memory, owner, name
):
    find, calls = getattr(owner, name), []
    before = records.refresh(), data_files(records)

    def lose_the_last(*asked):
        calls.append(asked)
        return [*find(*asked)][:-1]

    hold(in_memory)
    monkeypatch.setattr(owner, name, lose_the_last)

    with pytest.raises(LakeError, match="nothing was committed"):
        join(records)

    assert calls
    assert (records.refresh(), data_files(records)) == before


def test_a_compaction_that_fails_after_all_files_are_written_leaves_none(records, monkeypatch):
    before, written = (records.refresh(), data_files(records)), []

    def fail(*stats):
        written.append(len(data_files(records)))
        raise LakeError("the disk is full")

    monkeypatch.setattr(maintain_module, "check_unchanged", fail)
    with pytest.raises(LakeError, match="full"):
        join(records)

    assert written == [len(before[1]) + 2]
    assert (records.refresh(), data_files(records)) == before


@pytest.mark.parametrize("failure", [LakeError("no answer"), StalePlanError("already there")])
def test_a_compaction_that_was_committed_with_a_reported_failure_keeps_its_files(
    context, records, monkeypatch, failure
):
    before = held(context, *ALL)
    commit = RecordsTable.commit

    def commit_and_fail(*args, **options):
        commit(*args, **options)
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(RecordsTable, "commit", commit_and_fail)
        try:
            join(records)
        except (LakeError, StalePlanError) as error:
            assert error is failure  # noqa: PT017 - to report the failure is allowed, too

    records.refresh()
    assert len(records.files()) == 2
    assert held(context, *ALL) == before


def test_only_one_of_two_compactions_of_the_same_files_is_committed(context, records):
    second = context.lake.records("us-east")
    files = second.files()
    join(records)

    with pytest.raises(StalePlanError, match="another process"):
        second.replace(files, [])


def test_only_one_of_two_compactions_planned_from_the_same_version_is_committed(
    context, records, monkeypatch
):
    second = context.lake.records("us-east")
    second.refresh()
    join(records)
    before = data_files(records)

    with monkeypatch.context() as patch:
        patch.setattr(second, "refresh", lambda: second.version)
        with pytest.raises(StalePlanError):
            join(second)

    assert len(held(context, A)[A]) == 70
    assert data_files(records) == before, "the second one leaves no file"


def test_compaction_and_staging_at_the_same_time_both_commit(context, records, monkeypatch):
    check, pending = maintain_module.check_unchanged, [(4, 6)]

    def stage_meanwhile(*stats):
        for start, end in pending:
            stage_records(context, (SECOND_INCARNATION, start, end))
        pending.clear()
        check(*stats)

    monkeypatch.setattr(maintain_module, "check_unchanged", stage_meanwhile)
    assert join(records) == (8, 2)
    stage_records(context, (SECOND_INCARNATION, 6, 8))

    assert len(held(context, SECOND_INCARNATION)[SECOND_INCARNATION]) == 8


def test_retention_removes_only_files_that_all_flows_have_replayed(context, lake):
    replay_to(context, A, 35)
    replay_to(context, B, 18)

    (done,) = maintain(keeping(context, lake, stage_retention_ms=0))

    # The fourth file holds A 30-39: not all of it is replayed.
    records = context.lake.records("us-east")
    assert done.removed == 3
    assert (records.retained_from(A), records.retained_from(B)) == (30, 9)
    assert records.retained_from(OTHER) is None
    assert [row["offset"] for row in held(context, A)[A]] == list(range(30, 70))


def test_retention_keeps_a_shared_file_while_one_of_its_slots_is_not_replayed(context, lake):
    replay_to(context, SECOND_INCARNATION, 4)
    replay_to(context, B, 21)
    replay_to(context, OTHER, 4)

    (done,) = maintain(keeping(context, lake, stage_retention_ms=0))

    assert done.removed == 7
    left = held(context, *ALL)
    assert [len(left[source]) for source in ALL] == [0, 0, 4, 5]


def test_an_incarnation_counts_as_replayed_when_the_next_one_is_mapped(context, lake):
    replay_to(context, SECOND_INCARNATION, 4)
    replay_to(context, B, 21)
    replay_to(context, OTHER, 5)

    (done,) = maintain(keeping(context, lake, stage_retention_ms=0))

    assert done.removed == 8
    assert context.lake.records("us-east").files() == []


def test_retention_keeps_records_that_a_re_created_target_topic_lacks(context, lake, monkeypatch):
    replay_to(context, A, 70)
    replay_to(context, B, 21)
    monkeypatch.setattr("resources.delta.table.time.time", lambda: 1_000.0)
    # The target topic was re-created, and is replayed from the beginning.
    replay_to(context, A, 20, target_topic_id="target2")
    monkeypatch.undo()

    (done,) = maintain(keeping(context, lake, stage_retention_ms=0))

    assert done.removed == 2
    assert [row["offset"] for row in held(context, A)[A]] == list(range(20, 70))


def test_without_a_retention_setting_no_file_is_removed(context):
    replay_to(context, A, 70)
    (done,) = maintain(context)

    assert done.removed == 0


def test_maintenance_deletes_an_orphan_file_after_a_day(context, records):
    old, young = (records.path / f"part-000000000099-0008-0-{n}.parquet" for n in ("old", "new"))
    for path in (old, young):
        path.write_bytes(b"left by a crash")
    long_ago = time.time() - DAY_S - 600
    os.utime(old, (long_ago, long_ago))

    (done,) = maintain(context)

    assert (done.deleted, old.exists(), young.exists()) == (1, False, True)


@pytest.mark.parametrize(("retention_ms", "deleted"), [(0, 8), (600_000, 0)])
def test_a_file_that_compaction_replaced_is_deleted_after_the_vacuum_retention(
    context, lake, records, retention_ms, deleted
):
    before = data_files(records)
    rows = held(context, *ALL)

    (done,) = maintain(keeping(context, lake, vacuum_retention_ms=retention_ms))

    assert done.deleted == deleted == len(before - data_files(records))
    assert held(context, *ALL) == rows


def test_small_files_of_segments_are_merged_and_no_row_changes(context):
    for i in range(10):
        stage_records(context, (OTHER, 5 + i, 6 + i))
    segments = context.lake.segments("us-east")
    before = segments.rows().sort_by([("version", "ascending"), ("topic", "ascending")])

    (done,) = maintain(context)

    segments.refresh()
    after = segments.rows().sort_by([("version", "ascending"), ("topic", "ascending")])
    assert done.merged == 18
    assert after == before


def test_maintenance_fails_while_another_process_stages_the_cluster(context, lake):
    with Lease(lake, "stage us-east"), pytest.raises(LeaseHeldError, match="stage us-east"):
        maintain(context)
