"""Maintain a lake without changing its records."""

import dataclasses
import os
import time

import pytest

from deltamirror.maintenance import maintain as maintain_module
from deltamirror.maintenance.maintain import compact, maintain
from deltamirror.replay.offset_map import OffsetMap
from resources.coordination.lease import Lease
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


@pytest.fixture
def context(lake):
    context = ScriptedContext(lake)
    for i in range(6):
        stage_records(context, (A, i * 10, i * 10 + 10), (B, i * 3, i * 3 + 3), staged_at_ms=i)
    stage_records(context, (SECOND_INCARNATION, 0, 4), (OTHER, 0, 5), staged_at_ms=6)
    return context


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


def test_compaction_does_not_change_any_row(context):
    before = held(context, A, B, SECOND_INCARNATION, OTHER)
    records = context.lake.records("us-east")
    frontier = {s: records.frontier(s) for s in (A, B, SECOND_INCARNATION, OTHER)}

    (done,) = maintain(context)

    records.refresh()
    assert (done.joined, done.joined_into) == (7, 1)
    assert [(file.slot, file.sequence) for file in records.files()] == [(3, 7), (9, 7)]
    assert held(context, A, B, SECOND_INCARNATION, OTHER) == before
    assert {s: records.frontier(s) for s in frontier} == frontier


def test_staging_continues_after_a_compaction(context):
    maintain(context)
    stage_records(context, (SECOND_INCARNATION, 4, 6))

    assert [row["offset"] for row in held(context, SECOND_INCARNATION)[SECOND_INCARNATION]] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]


def test_a_compacted_file_that_differs_is_not_committed(context, monkeypatch):
    records = context.lake.records("us-east")
    before = records.refresh()
    monkeypatch.setattr(maintain_module, "sort_by_partition", lambda rows: rows[:-1])

    with pytest.raises(LakeError, match="nothing was committed"):
        list(compact(records))

    assert records.refresh() == before
    on_disk = [path for path in records.path.glob("slot=3/*") if path.is_file()]
    assert len(on_disk) == 7


def test_only_one_of_two_compactions_of_the_same_files_is_committed(context):
    first, second = context.lake.records("us-east"), context.lake.records("us-east")
    files = [file for file in second.files() if file.slot == 3]
    list(compact(first))

    with pytest.raises(StalePlanError, match="another process"):
        second.replace(files, [])


def test_only_one_of_two_compactions_planned_from_the_same_version_is_committed(
    context, monkeypatch
):
    first, second = context.lake.records("us-east"), context.lake.records("us-east")
    second.refresh()
    refresh = second.refresh
    monkeypatch.setattr(second, "refresh", lambda: second.version)
    joining = compact(second)
    list(compact(first))

    with pytest.raises((StalePlanError, LakeError)):
        list(joining)

    monkeypatch.setattr(second, "refresh", refresh)
    assert len(held(context, A)[A]) == 60


def test_compaction_and_staging_at_the_same_time_both_commit(context):
    compacting = context.lake.records("us-east")
    compacting.refresh()
    stage_records(context, (SECOND_INCARNATION, 4, 6))
    list(compact(compacting))
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
    assert [row["offset"] for row in held(context, A)[A]] == list(range(30, 60))


def test_an_incarnation_counts_as_replayed_when_the_next_one_is_mapped(context, lake):
    replay_to(context, SECOND_INCARNATION, 4)
    replay_to(context, B, 18)
    replay_to(context, OTHER, 5)

    (done,) = maintain(keeping(context, lake, stage_retention_ms=0))

    assert done.removed == 8
    assert context.lake.records("us-east").files() == []


def test_retention_keeps_records_that_a_re_created_target_topic_lacks(context, lake, monkeypatch):
    replay_to(context, A, 60)
    replay_to(context, B, 18)
    monkeypatch.setattr("resources.delta.table.time.time", lambda: 1_000.0)
    # The target topic was re-created, and is replayed from the beginning.
    replay_to(context, A, 20, target_topic_id="target2")
    monkeypatch.undo()

    (done,) = maintain(keeping(context, lake, stage_retention_ms=0))

    assert done.removed == 2
    assert [row["offset"] for row in held(context, A)[A]] == list(range(20, 60))


def test_without_a_retention_setting_no_file_is_removed(context):
    replay_to(context, A, 60)
    (done,) = maintain(context)

    assert done.removed == 0


def test_vacuum_deletes_an_orphan_file_after_a_day(context):
    folder = context.lake.records("us-east").path / "slot=3"
    old, young = folder / "part-000000000099-old.parquet", folder / "part-000000000099-new.parquet"
    for path in (old, young):
        path.write_bytes(b"left by a crash")
    long_ago = time.time() - DAY_S - 600
    os.utime(old, (long_ago, long_ago))

    (done,) = maintain(context)

    assert (done.deleted, old.exists(), young.exists()) == (1, False, True)


def test_small_files_of_segments_are_merged_and_no_row_changes(context):
    for i in range(10):
        stage_records(context, (OTHER, 5 + i, 6 + i))
    segments = context.lake.segments("us-east")
    before = segments.rows().sort_by([("version", "ascending"), ("topic", "ascending")])

    (done,) = maintain(context)

    segments.refresh()
    after = segments.rows().sort_by([("version", "ascending"), ("topic", "ascending")])
    assert done.merged == 17
    assert after == before


def test_maintenance_fails_while_another_process_stages_the_cluster(context, lake):
    with Lease(lake, "stage us-east"), pytest.raises(LeaseHeldError, match="stage us-east"):
        maintain(context)
