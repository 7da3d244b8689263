"""Runs of the loops on fake clusters, whose tasks run right here."""

import threading
from contextlib import contextmanager

from deltamirror import backoff as patience
from deltamirror.run import background as beside
from deltamirror.run import supervisor as mirror_module
from tests.support.fake_context import FakeClusters, Inline

WAIT_S = 20.0


class Idle:
    """Stands for what goes on beside the loops."""

    def __init__(self, *_):
        pass

    def run(self):
        pass


class Warm(Inline):
    def __init__(self, cores):
        pass


def looping_site(lake, monkeypatch):
    """Return a site of one flow, us-east->eu-west, of which runs are made; `orders` is there."""
    made = FakeClusters(lake, monkeypatch)
    made.source.make("orders")
    monkeypatch.setattr(mirror_module, "Site", lambda config: made)
    monkeypatch.setattr(mirror_module, "Workers", Warm)
    monkeypatch.setattr(beside, "Upkeep", Idle)
    monkeypatch.setattr(mirror_module, "Housekeeping", Idle)
    monkeypatch.setattr(patience, "BACKOFF_S", (0.01, 0.02))
    monkeypatch.setattr(patience, "GIVE_UP_S", 0.5)
    monkeypatch.setattr(made, "close", lambda: None)
    return made


@contextmanager
def looping(run, stop):
    """Run the loops of *run* beside the test; *stop* is set at the end."""
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(WAIT_S)
