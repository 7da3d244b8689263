"""Periodic tasks: their intervals, and the effects of a failing task."""

import threading

import pytest

from deltamirror.run.background import PeriodicRunner, PeriodicTask
from schemas.errors.environment import UnreachableError

PATIENCE_S = 10.0
NEVER_S = 3_600.0


class Turns:
    """Count the turns of tasks; set *stop* when all of *wanted* had their turns."""

    def __init__(self, stop, **wanted):
        self._stop, self._left = stop, dict(wanted)
        self.seen = []

    def of(self, name):
        def step():
            self.seen.append(name)
            self._left[name] = self._left.get(name, 0) - 1
            if all(left <= 0 for left in self._left.values()):
                self._stop.set()

        return step


@pytest.fixture
def events():
    stop, done = threading.Event(), threading.Event()
    # A test always ends.
    timer = threading.Timer(PATIENCE_S, stop.set)
    timer.start()
    yield stop, done
    timer.cancel()


def test_each_task_has_its_own_interval(events):
    turns = Turns(events[0], often=3, once=1)
    chores = [
        PeriodicTask("often", 0.001, turns.of("often")),
        PeriodicTask("once", NEVER_S, turns.of("once")),
    ]

    PeriodicRunner(chores, *events).run()

    assert turns.seen.count("often") == 3
    assert turns.seen.count("once") == 1


def test_a_failed_task_is_logged_and_retried_and_the_other_tasks_continue(events, caplog):
    turns = Turns(events[0], failing=2, sound=2)

    def fail():
        turns.of("failing")()
        raise UnreachableError("b", servers="localhost:1", reason="refused")

    chores = [
        PeriodicTask("the failing one", 0.001, fail),
        PeriodicTask("sound", 0.001, turns.of("sound")),
    ]
    PeriodicRunner(chores, *events).run()

    assert turns.seen.count("failing") >= 2
    assert turns.seen.count("sound") >= 2
    assert "the failing one: " in caplog.text


def test_the_same_failure_is_logged_once_and_again_after_a_success(events, caplog):
    outcomes = ["down", "down", "slow", None, "slow"]

    def step():
        why = outcomes.pop(0)
        if not outcomes:
            events[0].set()
        if why:
            raise UnreachableError("b", servers="localhost:1", reason=why)

    PeriodicRunner([PeriodicTask("failing", 0.001, step)], *events).run()

    messages = [record.getMessage() for record in caplog.records]
    assert ["down" in messages[0], "slow" in messages[1], "slow" in messages[2], len(messages)] == [
        True
    ] * 3 + [3]


def test_an_unexpected_error_of_a_task_is_logged_and_stops_no_task(events, caplog):
    turns = Turns(events[0], defect=2, sound=2)

    def fail():
        turns.of("defect")()
        raise KeyError("unexpected")

    chores = [
        PeriodicTask("the defect", 0.001, fail),
        PeriodicTask("sound", 0.001, turns.of("sound")),
    ]
    PeriodicRunner(chores, *events).run()

    assert turns.seen.count("defect") >= 2
    assert turns.seen.count("sound") >= 2
    assert "the defect: KeyError" in caplog.text


def test_tasks_run_once_more_after_the_loops_are_done(events):
    stop, done = events
    done.set()
    turns = Turns(stop)
    chores = [
        PeriodicTask(
            "last",
            NEVER_S,
            lambda: turns.seen.append("last"),
            initial_delay_s=NEVER_S,
            is_run_at_end=True,
        ),
        PeriodicTask("other", NEVER_S, lambda: turns.seen.append("other"), initial_delay_s=NEVER_S),
    ]

    PeriodicRunner(chores, stop, done).run()

    assert turns.seen == ["last"]


def test_no_task_runs_after_the_run_was_stopped(events):
    stop, done = events
    stop.set()
    turns = Turns(threading.Event())

    PeriodicRunner(
        [PeriodicTask("any", 0.001, turns.of("any"), is_run_at_end=True)], stop, done
    ).run()

    assert turns.seen == []
