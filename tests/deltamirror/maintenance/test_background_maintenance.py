"""Maintain in the background only the clusters that this process stages."""

import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from deltamirror.maintenance import maintain as maintain_module
from deltamirror.maintenance.maintain import (
    COMPACTION_SHARE,
    IDLE_SHARE,
    MAX_BUDGET_S,
    MaintenanceLoop,
    maintained_tables,
)
from deltamirror.timings import Timings
from resources.coordination.lease import Lease
from schemas.errors.lake import LakeError, StalePlanError
from tests.support.lake import ScriptedContext
from tests.support.staged_lake import held, in_one_slot, stage_records

(ORDERS,) = in_one_slot(1)


class Stager:
    """A stager of `us-east`, as the maintenance sees it."""

    def __init__(self, lake):
        self.lease = Lease(lake, "stage us-east")
        self.cpu_s = 0.0


@pytest.fixture
def context(lake):
    context = ScriptedContext(lake)
    for i in range(5):
        stage_records(context, (ORDERS, i, i + 1))
    return context


@pytest.fixture
def stager(context, lake):
    """Return a stager that does not hold its lease."""
    return Stager(lake)


@pytest.fixture
def few(monkeypatch):
    """Let the loop join files although they are few."""
    compact = partial(maintain_module.compact, min_sequences=2)
    monkeypatch.setattr(maintain_module, "compact", compact)


def loop_of(context, stager, over=None):
    return MaintenanceLoop(context, {"us-east": stager}, over or threading.Event())


def files(context):
    records = context.lake.records("us-east")
    records.refresh()
    return len(records.files())


def on_disk(context):
    return len([*context.lake.records("us-east").path.glob("*.parquet")])


def last_checkpoint(context):
    return context.lake.records("us-east").path / "_delta_log" / "_last_checkpoint"


def test_only_records_of_clusters_staged_by_this_process_are_compacted(context, stager, few):
    loop = loop_of(context, stager)
    stager.cpu_s = 100.0

    loop.compact_records()
    assert files(context) == 5

    with stager.lease:
        loop.compact_records()
    assert files(context) == 1
    assert len(held(context, ORDERS)[ORDERS]) == 5


def test_a_damaged_file_does_not_keep_other_files_from_being_joined(context, stager, few, caplog):
    path = context.lake.records("us-east").path
    damaged = sorted(path.glob("*.parquet"))[0]
    damaged.write_bytes(b"not a data file")
    loop = loop_of(context, stager)

    with stager.lease:
        for _ in range(3):
            stager.cpu_s += 100.0
            loop.compact_records()

    assert files(context) == 2
    assert damaged.exists()
    assert caplog.text.count("its content does not match its digest") == 1


def test_retention_is_applied_only_to_clusters_staged_by_this_process(context, stager, monkeypatch):
    context.config = replace(context.config, flows=(), stage_retention_ms=0)
    loop = loop_of(context, stager)

    loop.apply_retention()
    assert files(context) == 5

    with stager.lease:
        loop.apply_retention()
    assert files(context) == 0


class Clock:
    """Counts compactions, of which each takes *cost_s* of CPU time, and ends after *left*."""

    def __init__(self, cost_s=1.0):
        self.cost_s, self.left, self.error = cost_s, 10**6, None
        self.cpu_s = self.now_s = 0.0
        self.calls = 0

    def compact(self, records, damaged=()):
        self.cpu_s += self.cost_s
        self.calls += 1
        if self.error is not None:
            raise self.error
        self.left -= 1
        return (4, 1) if self.left >= 0 else None

    def calls_of(self, loop):
        """Return how many times one turn of *loop* compacts."""
        before = self.calls
        loop.compact_records()
        return self.calls - before


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(maintain_module, "compact", clock.compact)
    monkeypatch.setattr(maintain_module.time, "thread_time", lambda: clock.cpu_s)
    monkeypatch.setattr(maintain_module.time, "monotonic", lambda: clock.now_s)
    return clock


def test_compaction_stops_when_its_budget_is_used_up_and_continues_after_more_staging(
    context, stager, clock
):
    loop = loop_of(context, stager)
    with stager.lease:
        assert clock.calls_of(loop) == 0, "nothing was staged yet"

        stager.cpu_s += 2.5 / COMPACTION_SHARE
        assert [clock.calls_of(loop), clock.calls_of(loop)] == [3, 0]

        stager.cpu_s += 0.4 / COMPACTION_SHARE
        assert clock.calls_of(loop) == 0, "0.1 s of the debt are left"

        stager.cpu_s += 0.2 / COMPACTION_SHARE
        assert [clock.calls_of(loop), clock.calls_of(loop)] == [1, 0]


def test_compaction_takes_its_share_of_the_cpu_time_of_staging(context, stager, clock):
    loop = loop_of(context, stager)
    clock.cost_s = 0.3
    with stager.lease:
        for _ in range(500):
            stager.cpu_s += 1.0
            loop.compact_records()

    assert clock.cpu_s == pytest.approx(COMPACTION_SHARE * stager.cpu_s, abs=0.3)


def test_while_nothing_is_staged_compaction_takes_a_small_share_of_a_core(context, stager, clock):
    loop = loop_of(context, stager)
    with stager.lease:
        for _ in range(500):
            clock.now_s += 1.0
            loop.compact_records()

    assert clock.cpu_s == pytest.approx(IDLE_SHARE * clock.now_s, abs=1.0)
    assert clock.calls > 1


def test_compaction_does_not_save_up_more_than_the_largest_budget(context, stager, clock):
    loop = loop_of(context, stager)
    clock.now_s, stager.cpu_s = 10**6, 10**6
    with stager.lease:
        assert clock.calls_of(loop) == MAX_BUDGET_S


def test_compaction_stops_when_no_file_is_left_to_join(context, stager, clock):
    loop = loop_of(context, stager)
    clock.left, stager.cpu_s = 1, 5.0 / COMPACTION_SHARE
    with stager.lease:
        assert clock.calls_of(loop) == 2


def test_compaction_stops_when_the_process_is_to_end(context, stager, clock):
    over = threading.Event()
    loop = loop_of(context, stager, over)
    stager.cpu_s = 5.0 / COMPACTION_SHARE
    over.set()
    with stager.lease:
        assert clock.calls_of(loop) == 0


def test_a_compaction_that_fails_uses_up_its_budget(context, stager, clock):
    loop = loop_of(context, stager)
    clock.cost_s, clock.error = 3.0, LakeError("the file is damaged")
    stager.cpu_s += 1.0 / COMPACTION_SHARE
    with stager.lease:
        assert [clock.calls_of(loop), clock.calls_of(loop)] == [1, 0]


@contextmanager
def ended_by(over, monkeypatch, name, turns=1):
    """End a loop in the block after *turns* calls of its method *name*."""
    method, calls = getattr(MaintenanceLoop, name), []

    def count(loop):
        calls.append(name)
        try:
            method(loop)
        finally:
            if len(calls) == turns:
                over.set()

    with monkeypatch.context() as patch:
        patch.setattr(MaintenanceLoop, name, count)
        yield


@pytest.mark.parametrize(
    ("work", "method"),
    [
        ("compact", "compact_records"),
        ("optimize", "optimize_tables"),
        ("apply_retention", "apply_retention"),
    ],
)
def test_maintenance_is_retried_after_a_failure(context, stager, monkeypatch, work, method):
    context.timings = Timings(
        compact_interval_s=0.01, optimize_interval_s=0.01, maintain_interval_s=0.01
    )
    over, failed = threading.Event(), []

    def fail(*_, **__):
        failed.append(work)
        raise StalePlanError("another process was first")

    monkeypatch.setattr(maintain_module, work, fail)
    with stager.lease, ended_by(over, monkeypatch, method, turns=2):
        stager.cpu_s = 100.0
        loop_of(context, stager, over).run()

    assert len(failed) >= 2


def test_checkpoints_are_written_before_retention_is_first_applied(context, stager, monkeypatch):
    over, applied = threading.Event(), []
    context.timings = Timings(compact_interval_s=0.01, optimize_interval_s=0.01)
    monkeypatch.setattr(maintain_module, "COMMITS_PER_CHECKPOINT", 3)
    monkeypatch.setattr(maintain_module, "apply_retention", lambda *_: applied.append(1))
    with stager.lease, ended_by(over, monkeypatch, "optimize_tables"):
        loop_of(context, stager, over).run()

    assert last_checkpoint(context).exists()
    assert not applied


def test_no_checkpoint_is_written_for_a_cluster_that_another_process_stages(
    context, stager, monkeypatch
):
    monkeypatch.setattr(maintain_module, "COMMITS_PER_CHECKPOINT", 3)

    loop_of(context, stager).optimize_tables()

    assert not last_checkpoint(context).exists()


def test_optimize_tables_merges_files_of_segments_and_not_of_records(context, stager, monkeypatch):
    monkeypatch.setattr("resources.delta.table_maintenance.MIN_SMALL_FILES", 3)
    segments = context.lake.segments("us-east")
    before = segments.rows().sort_by("start")
    assert len(segments.live) == 5

    with stager.lease:
        loop_of(context, stager).optimize_tables()

    segments.refresh()
    assert len(segments.live) == 1
    assert segments.rows().sort_by("start") == before
    assert files(context) == 5


@pytest.mark.parametrize(("retention_ms", "left"), [(0, 1), (600_000, 6)])
def test_files_that_compaction_replaced_are_deleted_after_the_vacuum_retention(
    context, stager, few, retention_ms, left
):
    context.config = replace(context.config, vacuum_retention_ms=retention_ms)
    loop = loop_of(context, stager)
    with stager.lease:
        loop.optimize_tables()
        assert on_disk(context) == 5
        stager.cpu_s = 100.0
        loop.compact_records()
        loop.optimize_tables()

    assert on_disk(context) == left
    assert len(held(context, ORDERS)[ORDERS]) == 5


def test_a_table_that_cannot_be_optimized_does_not_stop_the_checkpoints_of_others(
    context, stager, monkeypatch
):
    monkeypatch.setattr(maintain_module, "COMMITS_PER_CHECKPOINT", 3)

    def refuse(table):
        raise StalePlanError("another process was first")

    monkeypatch.setattr("deltamirror.maintenance.maintain.optimize", refuse)
    monkeypatch.setattr(
        "deltamirror.maintenance.maintain.maintained_tables",
        lambda *which: maintained_tables(*which)[::-1],
    )
    with stager.lease:
        loop_of(context, stager).optimize_tables()

    assert last_checkpoint(context).exists()
