"""Both loops together, as `deltamirror run` has them: from the source to the target."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from assets.mirror import mirror
from assets.reporter import Silent
from benchmarks.ground import Ground
from benchmarks.meter import Cost, Meter
from schemas.config import Config
from schemas.flow import Flow
from schemas.replay_work import Move


class Arrival(Silent):
    """A reporter that stops the meter when the last of *records* is committed on the target."""

    def __init__(self, meter: Meter, records: int) -> None:
        self._meter, self._records = meter, records
        self._arrived = 0
        self.stop = threading.Event()
        self.cost: Cost | None = None

    def replayed(self, flow: Flow, moves: Sequence[Move]) -> None:
        """Count what arrived."""
        self._arrived += sum(move.records for move in moves)
        if self._arrived >= self._records and self.cost is None:
            self.cost = self._meter.stop(self._arrived)
            self.stop.set()


def measure(ground: Ground, config: Config, records: int) -> Cost:
    """Return what mirroring the one topic of *config* costs. Raises RuntimeError: not all came."""
    arrival = Arrival(Meter(ground.broker_pids), records)
    mirror(config, reporter=arrival, stop=arrival.stop)
    if arrival.cost is None or arrival.cost.records != records:
        raise RuntimeError(f"{records} records were to arrive, and {arrival.cost}")
    return arrival.cost
