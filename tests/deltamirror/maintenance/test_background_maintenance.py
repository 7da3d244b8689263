"""The loop's process keeps small what it stages, and only that."""

import threading

from deltamirror.maintenance import maintain as housekeeping
from deltamirror.maintenance.maintain import Housekeeping, tables_of
from resources.coordination.lease import Lease
from schemas.errors import StalePlanError
from tests.support.lake import FakeSite
from tests.support.staged_lake import in_one_slot, stage_records

(ORDERS,) = in_one_slot(1)


def staged(lake):
    site = FakeSite(lake)
    for i in range(5):
        stage_records(site, (ORDERS, i, i + 1))
    return site, Lease(lake, "stage us-east")


def files(site):
    records = site.lake.records("us-east")
    records.refresh()
    return len(records.files())


def last_checkpoint(site):
    return site.lake.records("us-east").path / "_delta_log" / "_last_checkpoint"


def test_only_what_this_process_stages_is_maintained(lake):
    site, lease = staged(lake)
    keeping = Housekeeping(site, {"us-east": lease}, threading.Event())

    keeping.turn()
    assert files(site) == 5

    with lease:
        keeping.turn()
    assert files(site) == 1


def test_a_failure_is_tried_again_at_the_next_turn(lake, monkeypatch):
    site, lease = staged(lake)
    over, turns = threading.Event(), []

    def fail(*_):
        turns.append(1)
        if len(turns) == 2:
            over.set()
        raise StalePlanError("another process was first")

    monkeypatch.setattr(housekeeping, "maintain_cluster", fail)
    monkeypatch.setattr(housekeeping, "EVERY_S", 0.01)
    with lease:
        Housekeeping(site, {"us-east": lease}, over).run()

    assert len(turns) == 2


def test_checkpoints_do_not_wait_for_the_rest_of_the_maintenance(lake, monkeypatch):
    site, lease = staged(lake)
    over, turned = threading.Event(), []
    monkeypatch.setattr(housekeeping, "OFTEN_S", 0.01)
    monkeypatch.setattr(housekeeping, "COMMITS", 3)
    monkeypatch.setattr(housekeeping, "maintain_cluster", lambda *_: turned.append(1))
    write = Housekeeping.tidy_up

    def write_once(keeping):
        write(keeping)
        over.set()

    monkeypatch.setattr(Housekeeping, "tidy_up", write_once)
    with lease:
        Housekeeping(site, {"us-east": lease}, over).run()

    assert last_checkpoint(site).exists()
    assert not turned


def test_tables_of_a_cluster_that_another_process_stages_get_no_checkpoint_of_this_one(
    lake, monkeypatch
):
    site, lease = staged(lake)
    monkeypatch.setattr(housekeeping, "COMMITS", 3)

    Housekeeping(site, {"us-east": lease}, threading.Event()).tidy_up()

    assert not last_checkpoint(site).exists()


def test_small_files_of_the_ledger_are_merged_between_turns_and_data_files_are_left_alone(
    lake, monkeypatch
):
    site, lease = staged(lake)
    monkeypatch.setattr("resources.delta.table_maintenance.MANY", 3)
    segments = site.lake.segments("us-east")
    before = segments.rows().sort_by("start")
    assert len(segments.live) == 5

    with lease:
        Housekeeping(site, {"us-east": lease}, threading.Event()).tidy_up()

    segments.refresh()
    assert len(segments.live) == 1
    assert segments.rows().sort_by("start") == before
    assert files(site) == 5


def test_a_table_that_cannot_be_merged_keeps_no_other_from_its_checkpoint(lake, monkeypatch):
    site, lease = staged(lake)
    monkeypatch.setattr(housekeeping, "COMMITS", 3)

    def refuse(table):
        raise StalePlanError("another process was first")

    monkeypatch.setattr("deltamirror.maintenance.maintain.optimize", refuse)
    monkeypatch.setattr(
        "deltamirror.maintenance.maintain.tables_of", lambda *which: tables_of(*which)[::-1]
    )
    with lease:
        Housekeeping(site, {"us-east": lease}, threading.Event()).tidy_up()

    assert last_checkpoint(site).exists()
