"""The loop's process keeps small what it stages, and only that."""

import threading

from deltamirror.maintenance import maintain as housekeeping
from deltamirror.maintenance.maintain import MaintenanceLoop, maintained_tables
from deltamirror.timings import Timings
from resources.coordination.lease import Lease
from schemas.errors import StalePlanError
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


def test_only_what_this_process_stages_is_maintained(lake):
    context, lease = staged(lake)
    keeping = MaintenanceLoop(context, {"us-east": lease}, threading.Event())

    keeping.maintain_clusters()
    assert files(context) == 5

    with lease:
        keeping.maintain_clusters()
    assert files(context) == 1


def test_a_failure_is_tried_again_at_the_next_turn(lake, monkeypatch):
    context, lease = staged(lake)
    over, turns = threading.Event(), []

    def fail(*_):
        turns.append(1)
        if len(turns) == 2:
            over.set()
        raise StalePlanError("another process was first")

    monkeypatch.setattr(housekeeping, "maintain_cluster", fail)
    context.timings = Timings(maintain_interval_s=0.01)
    with lease:
        MaintenanceLoop(context, {"us-east": lease}, over).run()

    assert len(turns) == 2


def test_checkpoints_do_not_wait_for_the_rest_of_the_maintenance(lake, monkeypatch):
    context, lease = staged(lake)
    over, turned = threading.Event(), []
    context.timings = Timings(optimize_interval_s=0.01)
    monkeypatch.setattr(housekeeping, "COMMITS_PER_CHECKPOINT", 3)
    monkeypatch.setattr(housekeeping, "maintain_cluster", lambda *_: turned.append(1))
    write = MaintenanceLoop.optimize_tables

    def write_once(keeping):
        write(keeping)
        over.set()

    monkeypatch.setattr(MaintenanceLoop, "optimize_tables", write_once)
    with lease:
        MaintenanceLoop(context, {"us-east": lease}, over).run()

    assert last_checkpoint(context).exists()
    assert not turned


def test_tables_of_a_cluster_that_another_process_stages_get_no_checkpoint_of_this_one(
    lake, monkeypatch
):
    context, lease = staged(lake)
    monkeypatch.setattr(housekeeping, "COMMITS_PER_CHECKPOINT", 3)

    MaintenanceLoop(context, {"us-east": lease}, threading.Event()).optimize_tables()

    assert not last_checkpoint(context).exists()


def test_small_files_of_the_ledger_are_merged_between_turns_and_data_files_are_left_alone(
    lake, monkeypatch
):
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


def test_a_table_that_cannot_be_merged_keeps_no_other_from_its_checkpoint(lake, monkeypatch):
    context, lease = staged(lake)
    monkeypatch.setattr(housekeeping, "COMMITS_PER_CHECKPOINT", 3)

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
