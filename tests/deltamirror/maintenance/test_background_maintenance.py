"""Maintain in the background only the clusters that this process stages."""

import threading

from deltamirror.maintenance import maintain as maintain_module
from deltamirror.maintenance.maintain import MaintenanceLoop, maintained_tables
from deltamirror.timings import Timings
from resources.coordination.lease import Lease
from schemas.errors.lake import StalePlanError
from tests.support.lake import ScriptedContext
from tests.support.staged_lake import in_one_slot, stage_records

(ORDERS,) = in_one_slot(1)


def staged(lake):
    context = ScriptedContext(lake)
    for i in range(5):
        stage_records(context, (ORDERS, i, i + 1))
    return context, Lease(lake, "stage us-east")


def files(context):
    records = context.lake.records("us-east")
    records.refresh()
    return len(records.files())


def last_checkpoint(context):
    return context.lake.records("us-east").path / "_delta_log" / "_last_checkpoint"


def test_only_clusters_staged_by_this_process_are_maintained(lake):
    context, lease = staged(lake)
    loop = MaintenanceLoop(context, {"us-east": lease}, threading.Event())

    loop.maintain_clusters()
    assert files(context) == 5

    with lease:
        loop.maintain_clusters()
    assert files(context) == 1


def test_maintenance_is_retried_after_a_failure(lake, monkeypatch):
    context, lease = staged(lake)
    over, turns = threading.Event(), []

    def fail(*_):
        turns.append(1)
        if len(turns) == 2:
            over.set()
        raise StalePlanError("another process was first")

    monkeypatch.setattr(maintain_module, "maintain_cluster", fail)
    context.timings = Timings(maintain_interval_s=0.01)
    with lease:
        MaintenanceLoop(context, {"us-east": lease}, over).run()

    assert len(turns) == 2


def test_checkpoints_are_written_before_the_first_maintenance(lake, monkeypatch):
    context, lease = staged(lake)
    over, turned = threading.Event(), []
    context.timings = Timings(optimize_interval_s=0.01)
    monkeypatch.setattr(maintain_module, "COMMITS_PER_CHECKPOINT", 3)
    monkeypatch.setattr(maintain_module, "maintain_cluster", lambda *_: turned.append(1))
    write = MaintenanceLoop.optimize_tables

    def write_once(loop):
        write(loop)
        over.set()

    monkeypatch.setattr(MaintenanceLoop, "optimize_tables", write_once)
    with lease:
        MaintenanceLoop(context, {"us-east": lease}, over).run()

    assert last_checkpoint(context).exists()
    assert not turned


def test_no_checkpoint_is_written_for_a_cluster_that_another_process_stages(lake, monkeypatch):
    context, lease = staged(lake)
    monkeypatch.setattr(maintain_module, "COMMITS_PER_CHECKPOINT", 3)

    MaintenanceLoop(context, {"us-east": lease}, threading.Event()).optimize_tables()

    assert not last_checkpoint(context).exists()


def test_optimize_tables_merges_files_of_segments_and_not_of_records(lake, monkeypatch):
    context, lease = staged(lake)
    monkeypatch.setattr("resources.delta.table_maintenance.MIN_SMALL_FILES", 3)
    segments = context.lake.segments("us-east")
    before = segments.rows().sort_by("start")
    assert len(segments.live) == 5

    with lease:
        MaintenanceLoop(context, {"us-east": lease}, threading.Event()).optimize_tables()

    segments.refresh()
    assert len(segments.live) == 1
    assert segments.rows().sort_by("start") == before
    assert files(context) == 5


def test_a_table_that_cannot_be_optimized_does_not_stop_the_checkpoints_of_others(
    lake, monkeypatch
):
    context, lease = staged(lake)
    monkeypatch.setattr(maintain_module, "COMMITS_PER_CHECKPOINT", 3)

    def refuse(table):
        raise StalePlanError("another process was first")

    monkeypatch.setattr("deltamirror.maintenance.maintain.optimize", refuse)
    monkeypatch.setattr(
        "deltamirror.maintenance.maintain.maintained_tables",
        lambda *which: maintained_tables(*which)[::-1],
    )
    with lease:
        MaintenanceLoop(context, {"us-east": lease}, threading.Event()).optimize_tables()

    assert last_checkpoint(context).exists()
