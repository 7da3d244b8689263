"""Read the offset map while the process that replays has not appended its last runs."""

import dataclasses

import pytest

from deltamirror.maintenance.maintain import apply_retention
from deltamirror.replay import current_map
from deltamirror.replay.current_map import read_current_map
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.staging.stager import SourceStager
from deltamirror.timings import Timings
from pipeline.offset_map.index import MAP_COLUMNS
from schemas.errors.environment import UnreachableError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from tests.support.fake_cluster import FakeTarget, RecordContent
from tests.support.fake_context import FakeContext, InlineWorkers
from tests.support.runs import expand_runs

ORDERS, REMOTE = TopicPartition("orders", 0), TopicPartition("us-east.orders", 0)


@pytest.fixture
def context(lake, monkeypatch):
    made = FakeContext(lake, monkeypatch, Timings(map_interval_s=3600.0))
    made.source.make("orders")
    return made


@pytest.fixture
def replayer(context):
    """Yield a replayer that has replayed "a" and "b" and appended them, and then "c" and "d"."""
    staging = SourceStager(context, "us-east", InlineWorkers())
    staging.open()
    made = FlowReplayer(context, context.flow, InlineWorkers())
    made.open()
    for values in ("ab", "cd"):
        made.flush_map()
        context.source.append(ORDERS, *(RecordContent(value.encode()) for value in values))
        staging.tick()
        made.tick()
    yield made
    made.close()
    staging.close()


@pytest.fixture
def pairing(context, monkeypatch):
    """Let readers pair with the fake target, at once and not after a wait."""
    flow = context.flow.flow
    monkeypatch.setattr(current_map, "APPEND_TIMEOUT_S", 0.0)
    monkeypatch.setattr(
        current_map, "TargetLog", lambda *_: FakeTarget(context.target, flow, ORDERS.slot)
    )


@pytest.fixture
def no_pairing(monkeypatch):
    def fail(*_):
        raise AssertionError("the reader paired records")

    monkeypatch.setattr(current_map, "TargetLog", fail)


def pairs(rows):
    """Return the (upstream, downstream) pairs of the map's *rows*."""
    found = rows.sort_by("downstream_start").to_pylist()
    return list(
        expand_runs(
            OffsetRun(r["upstream_start"], r["downstream_start"], r["length"]) for r in found
        )
    )


def arrived(context):
    """Return the (upstream, downstream) pairs of the records that are visible on the target."""
    upstream = {record.value: offset for offset, record in context.source.visible(ORDERS)}
    return [(upstream[record.value], offset) for offset, record in context.target.visible(REMOTE)]


def read(context):
    return pairs(read_current_map(context, context.flow, MAP_COLUMNS))


def in_table(context):
    return pairs(context.lake.offset_map(context.flow.flow).rows(MAP_COLUMNS))


def test_a_reader_waits_until_the_process_that_replays_has_appended_its_runs(
    context, replayer, no_pairing, monkeypatch
):
    assert len(in_table(context)) == 2
    monkeypatch.setattr(current_map.time, "sleep", lambda _: replayer.flush_map())

    assert read(context) == arrived(context)
    assert len(arrived(context)) == 4


def test_a_map_that_has_all_committed_records_is_read_without_a_wait(
    context, replayer, no_pairing, monkeypatch
):
    replayer.flush_map()
    monkeypatch.setattr(current_map.time, "sleep", lambda _: pytest.fail("the reader waited"))

    assert read(context) == arrived(context)


def test_if_no_append_comes_the_reader_pairs_the_records_and_writes_nothing(
    context, replayer, pairing
):
    assert read(context) == arrived(context)
    assert len(in_table(context)) == 2


def test_a_map_that_was_never_written_is_paired_completely(context, replayer, pairing, lake):
    context.lake.offset_map(context.flow.flow).path.rename(lake / "lost")

    assert read(context) == arrived(context)
    assert not context.lake.offset_map(context.flow.flow).exists()


def test_the_map_is_read_as_it_is_while_the_target_is_down(context, replayer, no_pairing, caplog):
    context.target.is_down = True

    assert read(context) == in_table(context)
    assert "the map is read as it is in the lake" in caplog.text


def test_records_that_cannot_be_paired_are_a_warning(context, replayer, pairing, caplog):
    context.target.logs[REMOTE].pop(-2)  # a record, before the marker of its transaction

    assert read(context) == in_table(context)
    assert "the offset map is read as it is in the lake" in caplog.text


def test_a_lost_map_of_records_that_retention_removed_is_a_warning(
    context, replayer, pairing, lake, caplog
):
    replayer.flush_map()
    context.config = dataclasses.replace(context.config, stage_retention_ms=0)
    assert apply_retention(context, "us-east", context.lake.records("us-east"))
    context.lake.offset_map(context.flow.flow).path.rename(lake / "lost")

    assert read(context) == []
    assert "retention removed the staged records" in caplog.text


def test_a_target_that_fails_while_records_are_paired_is_a_warning(
    context, replayer, pairing, monkeypatch, caplog
):
    def fail(*_):
        raise UnreachableError("eu-west", servers="nowhere:1", reason="it is down")

    monkeypatch.setattr(FakeTarget, "end_offsets", fail)

    assert read(context) == in_table(context)
    assert "the offset map is read as it is in the lake" in caplog.text


def test_progress_of_a_partition_without_records_needs_no_map(context, no_pairing, monkeypatch):
    context.source.make("empty")
    staging = SourceStager(context, "us-east", InlineWorkers())
    staging.open()
    staging.tick()
    replayer = FlowReplayer(context, context.flow, InlineWorkers())
    replayer.open()
    replayer.tick()
    monkeypatch.setattr(current_map.time, "sleep", lambda _: pytest.fail("the reader waited"))

    assert context.target.group_commits(context.flow.flow.progress_group)
    assert read(context) == []
    replayer.close()
    staging.close()
