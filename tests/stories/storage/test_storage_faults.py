"""Faults of the lake: a full disk; truncated, deleted, copied files; writes of other programs.

No record is lost or duplicated. The error's hint says what to do, the test does it, and the next
run continues. If no process has to die, tasks run in this process instead of Spark's workers.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from deltamirror.maintenance.maintain import maintain
from deltamirror.replay.offset_map import OffsetMap
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.staging.stager import SourceStager
from resources.delta.records_table import RecordsTable
from resources.delta.table import LakeTable
from resources.spark.session import spark_session
from schemas.errors.lake import (
    CommitsGoneError,
    LakeError,
    StagedFileError,
    StageIncompleteError,
    TableDamagedError,
)
from schemas.tables import SEGMENTS
from tests.support.brokers import create_topic
from tests.support.disk_faults import fill, small_disk
from tests.support.fake_context import InlineWorkers
from tests.support.storage_world import (
    AT_ONCE,
    PARTITIONS,
    assert_all_arrived_once,
    data_files,
    keys,
    mirror_next_turn,
    records_path,
    refused,
    replay,
    stage,
    write,
)
from tests.support.world import FLOW, World, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

DISK_BYTES = 2 * 2**20
DAY_S = 24 * 3600
TIMEOUT_S = 240.0
"""Seconds for a wait. Some include Spark's start, over a minute on a busy machine."""


@pytest.fixture
def here(world, source, unique_topic):
    """A world that mirrors one topic of two partitions with one turn of records."""
    create_topic(source.bootstrap_servers, unique_topic, PARTITIONS)
    made = world(unique_topic)
    made.topic, made.turns = unique_topic, 0
    write(made)
    return made


def delete(file: Path) -> None:
    file.unlink()


def tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def garble(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [delete, tear, garble])
def test_a_damaged_file_is_not_used_and_restaging_reads_its_records_again(here, damage):
    stage(here)
    write(here)
    stage(here)
    damage(data_files(here)[0])

    with pytest.raises(StagedFileError, match="cannot be read") as raised:
        replay(here)
    assert "maintain --restage" in raised.value.hint

    done = here.answer("maintain", "--restage")
    assert (done["clusters"][0]["files"], done["errors"]) == (1, [])
    assert done["clusters"][0]["from_source"] == PARTITIONS * AT_ONCE
    mirror_next_turn(here)
    assert_all_arrived_once(here)


def test_records_missing_on_both_sides_are_named_and_a_copy_of_the_file_restores_them(here):
    stage(here)
    file = data_files(here)[0]
    copy = file.read_bytes()
    tear(file)
    admin = AdminClient({"bootstrap.servers": here.source.bootstrap_servers})
    for p in range(PARTITIONS):
        at = KafkaPartition(here.topic, p, AT_ONCE // 2)
        admin.delete_records([at])[at].result(30)

    done = here.cli("maintain", "--restage", "--format", "json")

    errors = json.loads(done.stdout)["errors"]
    assert done.returncode == 1
    assert [error["type"] for error in errors] == ["SegmentLostError"] * PARTITIONS
    for error in errors:
        assert f"{AT_ONCE} records staged in [0, {AT_ONCE})" in error["message"]
    file.write_bytes(copy)
    mirror_next_turn(here)
    for p in range(PARTITIONS):
        assert keys(here, p) == [b"%d" % n for n in range(2 * AT_ONCE)]


def commits(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def test_a_lost_commit_is_reported_before_later_records_are_staged_and_is_repaired(here):
    stage(here)
    assert replay(here) == {}
    write(here)
    stage(here)
    commits(records_path(here))[-1].write_bytes(b"")  # as after a crash of the machine

    with pytest.raises(CommitsGoneError) as raised:
        stage(here)
    assert "maintain --restage" in raised.value.hint

    done = here.answer("maintain", "--restage")["clusters"][0]
    assert (done["records"], done["from_source"]) == (2 * AT_ONCE, 0)  # its files are still there
    mirror_next_turn(here)
    assert_all_arrived_once(here)


def missing(log: list[Path]) -> None:
    log[1].unlink()


def garbled(log: list[Path]) -> None:
    log[-1].write_bytes(b"\0" * 500)


@pytest.mark.parametrize("damage", [missing, garbled])
def test_a_stage_with_a_damaged_log_is_moved_away_and_staged_again(here, damage):
    for _ in range(2):
        stage(here)
        assert replay(here) == {}
        write(here)
    damage(commits(records_path(here)))

    error = refused(here, "run", "--until-caught-up")
    assert error["type"] == "TableDamagedError"
    assert str(records_path(here)) in error["message"]
    assert "docs/operations.md" in error["hint"]

    cluster = records_path(here).parent
    shutil.move(cluster, cluster.with_name("damaged"))
    mirror_next_turn(here)
    assert_all_arrived_once(here)


def rows(here: World) -> list[tuple[int, ...]]:
    """Return the offset runs of the map, sorted by offset."""
    table = here.context.lake.offset_map(here.config.flow(FLOW).flow)
    found = table.rows(["upstream_start", "partition", "downstream_start", "length"]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.mark.parametrize("damage", [missing, garbled])
def test_an_offset_map_with_a_damaged_log_is_moved_away_and_rebuilt(here, damage):
    for _ in range(2):
        stage(here)
        assert replay(here) == {}
        write(here)
    table = here.context.lake.offset_map(here.config.flow(FLOW).flow)
    before = rows(here)
    damage(commits(table.path))

    with pytest.raises(TableDamagedError, match="offset_map cannot be read"):
        replay(here)

    shutil.move(table.path, table.path.with_name("damaged"))
    assert replay(here) == {}
    assert rows(here)[: len(before)] == before
    mirror_next_turn(here)
    assert_all_arrived_once(here)


def test_a_damaged_segments_table_is_moved_away_and_rebuilt_from_records(here):
    for _ in range(2):
        stage(here)
        assert replay(here) == {}
        write(here)
    table = here.context.lake.segments("us-east")
    before = table.rows().num_rows
    garbled(commits(table.path))

    with pytest.raises(TableDamagedError, match="segments cannot be read"):
        stage(here)

    shutil.move(table.path, table.path.with_name("damaged"))
    stage(here)
    assert here.context.lake.segments("us-east").rows().num_rows == before + PARTITIONS
    mirror_next_turn(here)
    assert_all_arrived_once(here)


FULL_AT = [
    pytest.param(SourceStager, "_stage", stage, id="at a data file"),
    pytest.param(RecordsTable, "stage", stage, id="at the commit of records"),
    pytest.param(OffsetMap, "flush", replay, id="at the offset map"),
]


@pytest.mark.parametrize(("owner", "name", "step"), FULL_AT)
def test_a_full_disk_loses_no_record_and_the_next_run_with_free_space_continues(
    world, source, unique_topic, tmp_path, monkeypatch, owner, name, step
):
    create_topic(source.bootstrap_servers, unique_topic, PARTITIONS)
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        here = world(unique_topic, **{"deltamirror.lake": str(disk / "lake")})
        here.topic, here.turns = unique_topic, 0
        mirror_next_turn(here)
        write(here)
        if step is replay:
            stage(here)
        whole, fillers = getattr(owner, name), []

        def full(*args, **options):
            fillers.append(fill(disk))
            return whole(*args, **options)

        monkeypatch.setattr(owner, name, full)
        before = set((disk / "lake").rglob("*.parquet"))
        with pytest.raises(LakeError, match=r"cannot be written: [^\n]*No space left") as raised:
            step(here)
        assert "free space" in raised.value.hint
        assert fillers
        monkeypatch.undo()
        if owner is RecordsTable:
            assert set((disk / "lake").rglob("*.parquet")) == before, "no new file takes space"

        fillers[-1].unlink()
        mirror_next_turn(here)
        assert_all_arrived_once(here)


def test_a_full_disk_when_segments_are_sealed_is_a_warning_and_the_next_run_seals_them(
    world, source, unique_topic, tmp_path, monkeypatch, caplog
):
    create_topic(source.bootstrap_servers, unique_topic, PARTITIONS)
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        here = world(unique_topic, **{"deltamirror.lake": str(disk / "lake")})
        here.topic, here.turns = unique_topic, 0
        write(here)
        append, fillers = LakeTable.append, []

        def full(table, *args, **options):
            if table.table is SEGMENTS:
                fillers.append(fill(disk))
            return append(table, *args, **options)

        monkeypatch.setattr(LakeTable, "append", full)
        stage(here)
        monkeypatch.undo()
        assert "No space left" in caplog.text
        assert here.context.lake.segments("us-east").rows().num_rows == PARTITIONS

        fillers[-1].unlink()
        mirror_next_turn(here)
        assert_all_arrived_once(here)
        sealed = LakeTable(here.context.lake.segments("us-east").path, SEGMENTS).rows()
        assert sealed.num_rows == here.context.lake.segments("us-east").rows().num_rows


def test_a_second_run_on_a_lake_fails_with_an_error_that_names_the_first(here):
    with here.staging():
        replaying = FlowReplayer(here.context, here.config.flow(FLOW), InlineWorkers())
        replaying.open()
        try:
            error = refused(here, "run", "--until-caught-up")
        finally:
            replaying.close()

    assert error["type"] == "LeaseHeldError"
    assert f"replay {FLOW} is done by another process (process " in error["message"]


def optimized_by_deltalake(path: Path) -> None:
    DeltaTable(str(path)).optimize.compact()


def optimized_by_spark(path: Path) -> None:
    spark_session().sql(f"OPTIMIZE delta.`{path}`").collect()


def deleted_by_spark(path: Path) -> None:
    spark_session().sql(f"DELETE FROM delta.`{path}` WHERE offset BETWEEN 30 AND 50").collect()


@pytest.mark.parametrize(
    ("rewrite", "from_source"),
    [(optimized_by_deltalake, False), (optimized_by_spark, False), (deleted_by_spark, True)],
)
def test_a_stage_that_another_program_rewrote_is_not_used_until_it_is_restaged(
    here, rewrite, from_source
):
    for _ in range(3):
        stage(here)
        write(here)
    rewrite(records_path(here))
    stage(here)  # the other program's commit does not change the frontiers

    errors = replay(here)
    assert {type(error) for error in errors.values()} == {StageIncompleteError}
    assert "maintain --restage" in next(iter(errors.values())).hint

    vacuum_fully(here)
    done = here.answer("maintain", "--restage")
    assert done["errors"] == []
    assert (done["clusters"][0]["from_source"] > 0) == from_source
    vacuum_fully(here)
    mirror_next_turn(here)
    assert_all_arrived_once(here)


def vacuum_fully(here: World) -> None:
    table = DeltaTable(str(records_path(here)))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def test_a_clock_that_is_set_back_and_forward_does_not_change_which_records_arrive(
    here, monkeypatch
):
    now = time.time
    for days in (0, -400, 400, 0):
        monkeypatch.setattr(time, "time", lambda: now() + days * DAY_S)  # noqa: B023
        mirror_next_turn(here)
        stage(here)
        context = here.context
        context.config = replace(context.config, stage_retention_ms=30 * DAY_S * 1000)
        maintain(context)
        write(here)
        stage(here)
    monkeypatch.undo()

    assert replay(here) == {}
    assert_all_arrived_once(here)


def test_a_run_on_a_copy_of_a_lake_in_use_neither_duplicates_nor_loses_records(here):
    run = here.start()
    until(lambda: arrived(here) > 0, "the first records arrive", TIMEOUT_S)
    copy = here.home / "copy"
    for _ in range(5):
        write(here)
    shutil.copytree(here.home / "lake", copy)  # like `cp -r` while the run writes
    there = replace_lake(here, copy)
    other = there.start()
    for _ in range(10):
        write(here)
    everything = here.turns * AT_ONCE * PARTITIONS
    until(lambda: arrived(here) >= everything, "everything arrives", TIMEOUT_S)
    for each in (run, other):
        each.terminate()
        each.wait(60)

    assert_all_arrived_once(here)
    outcome = there.cli("run", "--until-caught-up", "--format", "json", timeout=300)
    if outcome.returncode != 0:
        assert json.loads(outcome.stdout)["error"]["hint"], outcome.stderr
    mirror_next_turn(here)
    assert_all_arrived_once(here)


def arrived(here: World) -> int:
    try:
        return len(here.arrived(here.topic))
    except (KeyError, KafkaException):
        return 0


def replace_lake(here: World, lake: Path) -> World:
    """Return a world with the same clusters and its own configuration file for *lake*."""
    home = here.home / "other"
    home.mkdir()
    extra = {**here.extra, "deltamirror.lake": str(lake)}
    made = World(home, here.source, here.target, here.topics, extra)
    made.runs = here.runs
    return made
