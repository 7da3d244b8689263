"""Spark's workers answer, and tell in one line why one of them did not."""

import os
import signal

import pytest

from resources.spark import SparkFailedError, Workers


@pytest.fixture(scope="module")
def workers():
    return Workers(2)


def _double(number):
    return [2 * number]


def _fail(number):
    raise ValueError(f"{number} is not a number")


def _die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_each_job_is_answered(workers):
    assert sorted(workers.run("test", _double, [1, 2, 3])) == [2, 4, 6]


@pytest.mark.parametrize(
    ("work", "told"),
    [
        pytest.param(_fail, "a Spark task failed: ValueError: 7 is not a number", id="an error"),
        pytest.param(
            _die, "a Spark task failed: its Python worker was killed or crashed", id="a death"
        ),
    ],
)
def test_a_task_that_fails_tells_why_in_one_line(workers, work, told):
    with pytest.raises(SparkFailedError) as failure:
        workers.run("test", work, [7])

    assert str(failure.value) == told


def test_the_next_job_is_answered_by_a_new_worker_where_one_died(workers):
    with pytest.raises(SparkFailedError):
        workers.run("test", _die, [1])

    assert workers.run("test", _double, [1]) == [2]
