"""The loop's process keeps small what it stages, and only that."""

import threading

from assets import housekeeping
from assets.housekeeping import Housekeeping
from resources.lease import Lease
from schemas.errors import StalePlanError
from tests.assets.places import FakeSite
from tests.assets.staged_lake import in_one_slot, stage_records

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
