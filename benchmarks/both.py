"""Both loops together, as `deltamirror run` has them, their workers there already."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from benchmarks.ground import Ground
from benchmarks.meter import Cost, Meter
from deltamirror.listener import Listener
from deltamirror.run.supervisor import build_mirror
from schemas.config.config import Config
from schemas.config.flow import Flow
from schemas.replay.slot_work import CommittedBatch


class Arrival(Listener):
    """A reporter that stops *meter* when the last of *records* is committed on the target."""

    meter: Meter

    def __init__(self, records: int) -> None:
        self._records, self._arrived = records, 0
        self.stop = threading.Event()
        self.cost: Cost | None = None

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Count what arrived."""
        self._arrived += sum(move.records for move in moves)
        if self._arrived >= self._records and self.cost is None:
            self.cost = self.meter.stop(self._arrived)
            self.stop.set()


def measure(ground: Ground, config: Config, records: int) -> Cost:
    """Return what mirroring the one topic of *config* costs. Raises RuntimeError: not all came."""
    arrival = Arrival(records)
    run = build_mirror(config, listeners=[arrival], stop=arrival.stop)
    for worker_pool in run.worker_pools():
        worker_pool.start(config.tasks_max)
        worker_pool.wait_started()
    arrival.meter = Meter(ground.broker_pids)
    run.run()
    if arrival.cost is None or arrival.cost.records != records:
        raise RuntimeError(f"{records} records were to arrive, and {arrival.cost}")
    return arrival.cost
