"""Loops tick often if there is work, and seldom if idle ticks take long."""

import threading

import pytest

from deltamirror.run import loop
from deltamirror.timings import Timings


@pytest.mark.parametrize(
    ("took", "is_idle", "pause"),
    [
        pytest.param(0.05, False, 0.2, id="a short tick waits for the next one's time"),
        pytest.param(3.0, False, 0.0, id="after a long one the next follows at once"),
        pytest.param(0.01, True, 0.24, id="a quick look is taken as often as a tick"),
        pytest.param(0.1, True, 0.4, id="a long look takes a fifth of the time"),
        pytest.param(0.5, True, 0.5, id="one that is longer still is taken every second"),
        pytest.param(12.0, True, 0.0, id="one that was held up is followed by the next"),
    ],
)
def test_the_wait_before_the_next_tick_depends_on_the_duration_of_the_last_one(
    monkeypatch, took, is_idle, pause
):
    times = iter([100.0, 100.0 + took])
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(times))

    made = loop.Loop("stage us-east", loop.RunSignals(threading.Event()), (), Timings())

    assert made._seconds_to_next_tick(is_idle=is_idle) == pytest.approx(pause)
