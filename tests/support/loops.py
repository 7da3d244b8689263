"""Runs of the loops on fake clusters, whose tasks run right here."""

import threading
from contextlib import contextmanager

from deltamirror import backoff as patience
from deltamirror.run import background as beside
from deltamirror.run import supervisor as mirror_module
from tests.support.fake_context import FakeContext, InlineWorkers

WAIT_S = 20.0


class NoBackgroundTasks:
    """Stands for what goes on beside the loops."""

    def __init__(self, *_):
        pass

    def run(self):
        pass


class WarmWorkers(InlineWorkers):
    def __init__(self, cores):
        pass


def looping_context(lake, monkeypatch):
    """Return a site of one flow, us-east->eu-west, of which runs are made; `orders` is there."""
    made = FakeContext(lake, monkeypatch)
    made.source.make("orders")
    monkeypatch.setattr(mirror_module, "MirrorContext", lambda config: made)
    monkeypatch.setattr(mirror_module, "SparkWorkers", WarmWorkers)
    monkeypatch.setattr(beside, "PeriodicRunner", NoBackgroundTasks)
    monkeypatch.setattr(mirror_module, "MaintenanceLoop", NoBackgroundTasks)
    monkeypatch.setattr(patience, "BACKOFF_S", (0.01, 0.02))
    monkeypatch.setattr(patience, "FAILURE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(made, "close", lambda: None)
    return made


@contextmanager
def running_loops(run, stop):
    """Run the loops of *run* beside the test; *stop* is set at the end."""
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(WAIT_S)
