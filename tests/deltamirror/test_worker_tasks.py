"""Keep a worker's producers from job to job, and close them after a timeout."""

from pathlib import Path

import pytest

from deltamirror import worker_tasks as tasks
from deltamirror.worker_tasks import ReplayJob, ReplayWorker
from schemas.config.flow import Flow
from schemas.errors.base import RequestRefusedError
from schemas.errors.environment import UnreachableError
from schemas.errors.target import CommitUnknownError, FencedError
from schemas.replay.slot_work import SlotReplayResult, SlotWork

FLOW = Flow("us-east", "eu-west")
SLOTS = (0, 1, 2)


class Target:
    """A slot's producer: connected from its first job until it is closed."""

    def __init__(self, flow, slot, *_):
        self.slot, self.is_connected = slot, False

    def close(self):
        self.is_connected = False


@pytest.fixture
def connect(monkeypatch):
    """Return a function that replays all slots, one with a failure, and returns the connected."""
    targets, failing = {}, {}

    def replay(work, staged, target):
        targets[work.slot] = target
        target.is_connected = True
        return SlotReplayResult(work.slot, (), (), failing.get(work.slot), None)

    monkeypatch.setattr(tasks, "SlotProducer", Target)
    monkeypatch.setattr(tasks, "replay_slot", replay)
    replayer = ReplayWorker()

    def run(slot=None, failure=None):
        failing.clear()
        failing[slot] = failure
        works = tuple(SlotWork(FLOW, n, (), (), 1, 1, 1, 1) for n in SLOTS)
        replayer(ReplayJob(works, {}, {}, Path()))
        return {slot: target for slot, target in targets.items() if target.is_connected}

    return run


def test_producers_stay_connected_from_job_to_job(connect):
    first = connect()

    assert first.keys() == set(SLOTS)
    assert connect() == first


@pytest.mark.parametrize(
    "failure",
    [
        UnreachableError("eu-west", servers="", reason="no answer"),
        CommitUnknownError("id", reason="no answer"),
    ],
)
def test_if_the_target_does_not_respond_to_one_slot_the_other_slots_reconnect(connect, failure):
    connect()

    assert connect(1, failure).keys() == {2}


@pytest.mark.parametrize(
    "failure",
    [FencedError("id"), RequestRefusedError("eu-west", action="commit", code="NO", reason="no")],
)
def test_if_one_slot_is_refused_the_other_slots_stay_connected(connect, failure):
    connect()

    assert connect(1, failure).keys() == set(SLOTS)
