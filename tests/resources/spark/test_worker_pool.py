"""Resident Spark workers run many jobs, and report a failed job in one line."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from resources.spark.session import SparkWorkers
from schemas.errors.environment import SparkFailedError
from tests.support.brokers import cli_environment
from tests.support.world import until


@pytest.fixture
def pool_of():
    worker_pools = []

    def made(make):
        worker_pools.append(SparkWorkers(2).worker_pool(make))
        return worker_pools[-1]

    yield made
    for worker_pool in worker_pools:
        worker_pool.close()


class Sums:
    """Keeps a sum from job to job, and returns it with its process id."""

    def __init__(self):
        self.sum = 0

    def __call__(self, number):
        self.sum += number
        return [(os.getpid(), self.sum)]


def _double():
    return lambda number: [2 * number]


def _double_once(repaired):
    if not repaired.exists():
        raise ValueError("it is not repaired")
    return _double()


def _fail(number):
    raise ValueError(f"{number} is not a number")


def _die(number):
    os.kill(os.getpid(), signal.SIGKILL)


def _die_of_none(number):
    if number is None:
        _die(number)
    return [number]


def _sleep(started):
    started.touch()
    time.sleep(20)
    return []


def test_each_job_is_answered(pool_of):
    assert sorted(pool_of(_double).run({0: 1, 1: 2})) == [2, 4]


def test_workers_connect_even_if_the_temporary_folder_has_a_long_path(
    pool_of, tmp_path, monkeypatch
):
    long = tmp_path / ("n" * 200)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))

    assert pool_of(_double).run({0: 1}) == [2]


def test_a_worker_keeps_its_process_and_state_between_jobs(pool_of):
    worker_pool = pool_of(Sums)

    ((first, _),) = worker_pool.run({1: 3})
    ((again, total),) = worker_pool.run({1: 4})

    assert (again, total) == (first, 7)


def test_each_number_has_its_own_worker(pool_of):
    answers = pool_of(Sums).run({0: 1, 1: 1})

    assert len({pid for pid, _ in answers}) == 2
    assert os.getpid() not in {pid for pid, _ in answers}


@pytest.mark.parametrize(
    ("work", "message"),
    [
        pytest.param(_fail, "a Spark task failed: ValueError: 7 is not a number", id="an error"),
        pytest.param(
            _die, "a Spark task failed: its Python worker was killed or crashed", id="a death"
        ),
    ],
)
def test_a_failed_job_raises_a_one_line_error_with_the_cause(pool_of, work, message):
    with pytest.raises(SparkFailedError) as failure:
        pool_of(lambda: work).run({0: 7})

    assert str(failure.value) == message


def test_a_worker_runs_the_next_job_after_a_failed_one(pool_of):
    worker_pool = pool_of(lambda: lambda number: [1 // number, os.getpid()])
    (_, pid) = worker_pool.run({0: 1})

    with pytest.raises(SparkFailedError):
        worker_pool.run({0: 0})

    assert worker_pool.run({0: 1}) == [1, pid]


def test_a_worker_that_died_is_replaced_at_the_next_job(pool_of):
    worker_pool = pool_of(lambda: _die_of_none)
    with pytest.raises(SparkFailedError):
        worker_pool.run({0: None})

    assert worker_pool.run({0: 5}) == [5]


def test_a_worker_that_did_not_start_raises_an_error_and_is_replaced_at_the_next_job(
    pool_of, tmp_path
):
    repaired = tmp_path / "repaired"
    worker_pool = pool_of(partial(_double_once, repaired))
    worker_pool.start(1)

    with pytest.raises(SparkFailedError, match="it is not repaired"):
        worker_pool.wait_started()
    repaired.touch()

    assert worker_pool.run({0: 1}) == [2]


def test_if_a_worker_dies_the_others_finish_their_jobs_and_stay(pool_of):
    worker_pool = pool_of(lambda: _die_of_none)
    with pytest.raises(SparkFailedError):
        worker_pool.run({0: None, 1: 1})

    assert sorted(worker_pool.run({0: 2, 1: 3})) == [2, 3]


def test_closing_the_pool_ends_a_waiting_run_with_an_error(pool_of, tmp_path):
    worker_pool = pool_of(lambda: _sleep)
    failures = []

    def wait():
        try:
            worker_pool.run({0: tmp_path / "started"})
        except SparkFailedError as error:
            failures.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until((tmp_path / "started").exists, "the job has started")
    worker_pool.close()
    waiting.join(15)

    assert len(failures) == 1


def test_a_worker_that_is_shut_down_before_it_started_is_no_failure_for_spark(pool_of):
    worker_pool = pool_of(Sums)
    worker_pool.start(1)
    (worker,) = worker_pool._workers.values()

    worker_pool.close()
    worker.join(60)

    assert not worker._job.is_alive()
    assert worker._error is None


def test_a_worker_ends_after_shutdown(pool_of):
    worker_pool = pool_of(Sums)
    worker_pool.run({0: 1})
    (worker,) = worker_pool._workers.values()

    worker_pool.close()
    worker.join(60)

    assert not worker._job.is_alive()
    assert worker._error is None


def test_a_process_ends_without_output_while_a_thread_waits_for_an_answer_of_spark():
    script = r"""
import atexit, contextlib, sys, threading
from resources.spark.session import spark_context

def ask():
    # Who ends with something unread, which so much is, does not hang up but resets the connection.
    with contextlib.suppress(Exception):
        client.send_command("c\nz:java.lang.Thread\nsleep\nL60000\ne\n" + "e\n" * 50_000)

asking = threading.Thread(target=ask, daemon=True)
# What is registered first is called last: when Spark is gone.
atexit.register(asking.join, 60)
client = spark_context(2)._gateway._gateway_client
asking.start()
print("the end", file=sys.stderr, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=cli_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.stderr.partition("the end\n")[1:] == ("the end\n", "")
