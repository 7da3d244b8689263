"""Workers that do their jobs in this process, in the thread that asks: no Spark, one at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from resources.spark.session import SparkWorkers
from resources.spark.worker_pool import Answer, Job, Work, WorkerPool


class InlineWorkers(SparkWorkers):
    """As `SparkWorkers`; connections stay until `let_go`, also after a pool is closed."""

    def __init__(self, cores: int) -> None:
        super().__init__(cores)
        self._crews: list[_InlineCrew[Any, Any]] = []

    def worker_pool(self, make: Callable[[], Work[Job, Answer]]) -> WorkerPool[Job, Answer]:
        """Return workers for one duty; see `Workers.crew`."""
        worker_pool = _InlineCrew(make)
        self._crews.append(worker_pool)
        return worker_pool

    def let_go(self) -> None:
        """End every worker, with its clients."""
        self._crews.clear()


class _InlineCrew(WorkerPool[Job, Answer]):
    def __init__(self, make: Callable[[], Work[Job, Answer]]) -> None:
        self._new = make
        self._works: dict[int, Work[Job, Answer]] = {}

    def start(self, count: int) -> None:
        for number in range(count):
            self._works.setdefault(number, self._new())

    def wait_started(self) -> None:
        pass

    def run(self, jobs: Mapping[int, Job]) -> list[Answer]:
        self.start(max(jobs, default=-1) + 1)
        return [answer for number, job in jobs.items() for answer in self._works[number](job)]

    def close(self) -> None:
        pass


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Keep the collector from walking every record that is held, as in a worker of Spark."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
