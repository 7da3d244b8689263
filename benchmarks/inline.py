"""Worker pools that run their jobs in the calling thread, one at a time, without Spark."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from resources.spark.session import SparkWorkers
from resources.spark.worker_pool import Answer, Job, Work, WorkerPool


class InlineWorkers(SparkWorkers):
    """`SparkWorkers` without Spark. Connections stay until `release`, also after `close`."""

    def __init__(self, cores: int) -> None:
        super().__init__(cores)
        self._pools: list[_InlinePool[Any, Any]] = []

    def worker_pool(self, make: Callable[[], Work[Job, Answer]]) -> WorkerPool[Job, Answer]:
        """Return the workers of one role; see `SparkWorkers.worker_pool`."""
        worker_pool = _InlinePool(make)
        self._pools.append(worker_pool)
        return worker_pool

    def release(self) -> None:
        """Drop every worker and its clients."""
        self._pools.clear()


class _InlinePool(WorkerPool[Job, Answer]):
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
    """Disable garbage collection for the block, as a Spark worker does."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
