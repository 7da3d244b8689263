"""Workers that have begun before anything is measured."""

from __future__ import annotations

from collections.abc import Callable

from resources.spark.session import SparkWorkers
from resources.spark.worker_pool import Answer, Job, Work, WorkerPool


class Warmed(SparkWorkers):
    """As `SparkWorkers`; a crew is returned when all of it is there."""

    def worker_pool(self, make: Callable[[], Work[Job, Answer]]) -> WorkerPool[Job, Answer]:
        """Return workers for one duty; see `Workers.crew`."""
        worker_pool = super().worker_pool(make)
        worker_pool.start(self.cores)
        worker_pool.wait_started()
        return worker_pool
