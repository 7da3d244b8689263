"""Measure both loops together, as in `deltamirror run`, with workers that have started."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from benchmarks.ground import Ground
from benchmarks.meter import Cost, Meter
from deltamirror.listener import Listener
from deltamirror.run.supervisor import Mirror
from schemas.config.config import Config
from schemas.config.flow import Flow
from schemas.replay.slot_work import CommittedBatch


class Arrival(Listener):
    """Listener that stops *meter* when the last of *records* is committed on the target."""

    meter: Meter

    def __init__(self, records: int) -> None:
        self._records, self._arrived = records, 0
        self.stop = threading.Event()
        self.cost: Cost | None = None

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Count the records of *moves*."""
        self._arrived += sum(move.records for move in moves)
        if self._arrived >= self._records and self.cost is None:
            self.cost = self.meter.stop(self._arrived)
            self.stop.set()


def measure(ground: Ground, config: Config, records: int) -> Cost:
    """Return the cost of mirroring the topic of *config*. Raises RuntimeError if not all arrive."""
    arrival = Arrival(records)
    run = Mirror(config, listeners=[arrival], stop=arrival.stop)
    for worker_pool in run.worker_pools():
        worker_pool.start(config.tasks_max)
        worker_pool.wait_started()
    arrival.meter = Meter(ground.broker_pids)
    run.run()
    if arrival.cost is None or arrival.cost.records != records:
        raise RuntimeError(f"expected {records} records, got {arrival.cost}")
    return arrival.cost
