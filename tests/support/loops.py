"""Run the loops on fake clusters, with tasks in this process."""

import threading
from contextlib import contextmanager
from dataclasses import replace

from deltamirror.run import background as beside
from deltamirror.run import supervisor as mirror_module
from deltamirror.timings import Timings
from tests.support.fake_context import FakeContext, InlineWorkers

WAIT_S = 20.0
TIMINGS = Timings(backoff_initial_s=0.01, backoff_max_s=0.02, failure_timeout_s=0.5)


class NoBackgroundTasks:
    """Replaces the background tasks of a run and does nothing."""

    def __init__(self, *_):
        pass

    def run(self):
        pass


class WarmWorkers(InlineWorkers):
    def __init__(self, cores):
        pass


def looping_context(lake, monkeypatch, **timings):
    """Return a context of one flow, us-east->eu-west, for runs; the topic `orders` exists."""
    made = FakeContext(lake, monkeypatch, replace(TIMINGS, **timings))
    made.source.make("orders")
    monkeypatch.setattr(mirror_module, "MirrorContext", lambda config: made)
    monkeypatch.setattr(mirror_module, "SparkWorkers", WarmWorkers)
    monkeypatch.setattr(beside, "PeriodicRunner", NoBackgroundTasks)
    monkeypatch.setattr(mirror_module, "MaintenanceLoop", NoBackgroundTasks)
    monkeypatch.setattr(made, "close", lambda: None)
    return made


@contextmanager
def running_loops(run, stop):
    """Run the loops of *run* in a thread during the block; set *stop* at its end."""
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(WAIT_S)
