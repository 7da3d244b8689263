"""Keep a worker's clients from job to job, and close them after a failure."""

from pathlib import Path

import pytest

from deltamirror import worker_tasks as tasks
from deltamirror.worker_tasks import ReplayJob, ReplayWorker, StageJob, StageWorker
from pipeline.staging.stage import StageTask
from schemas.config.flow import Flow
from schemas.errors.base import RequestRefusedError
from schemas.errors.environment import UnreachableError
from schemas.errors.target import CommitUnknownError, FencedError
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks
from schemas.replay.slot_work import SlotReplayResult, SlotWork
from schemas.staging.read_range import OffsetRange
from tests.support.fake_cluster import FakeCluster, FakeSource, RecordContent

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


ORDERS = TopicPartition("orders", 0)


class Reader(FakeSource):
    """The reader of a worker. It fails with *failure*, and is open until it is closed."""

    failure = None
    is_open = True

    def read(self, *args):
        if self.failure is not None:
            raise self.failure
        return super().read(*args)

    def close(self):
        self.is_open = False


@pytest.fixture
def readers(monkeypatch):
    """Return the readers that workers have opened, of a cluster with one record."""
    cluster, opened = FakeCluster(), []
    cluster.make("orders")
    cluster.append(ORDERS, RecordContent(b"a"))

    def open_reader(settings):
        opened.append(Reader(cluster))
        return opened[-1]

    monkeypatch.setattr(tasks, "RangeReader", open_reader)
    return opened


def stage_job(folder):
    source = SourcePartition("orders", "orders-life1", 0)
    r = OffsetRange(source, 0, 1, 0, None, Watermarks(0, 1, 1))
    return StageJob(StageTask((r,), 1, 2**20), {}, folder)


def test_a_stage_task_returns_one_result_with_its_cpu_time(readers, tmp_path, monkeypatch):
    times = iter([5.0, 7.5])
    monkeypatch.setattr(tasks.time, "process_time", lambda: next(times))

    (found,) = StageWorker()(stage_job(tmp_path))

    assert [segment.count for segment in found.segments] == [1]
    assert (tmp_path / found.file.path).exists()
    assert found.cpu_s == 2.5


def test_a_reader_stays_open_from_job_to_job_until_a_job_fails(readers, tmp_path):
    worker, failure = StageWorker(), UnreachableError("us-east", servers="", reason="no answer")
    worker(stage_job(tmp_path))
    worker(stage_job(tmp_path))
    (reader,) = readers
    reader.failure = failure

    assert worker(stage_job(tmp_path)) == [failure]

    assert not reader.is_open
    (found,) = worker(stage_job(tmp_path))
    assert found.file is not None
    assert len(readers) == 2
