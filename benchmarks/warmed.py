"""Worker pools that have started before anything is measured."""

from __future__ import annotations

from collections.abc import Callable

from resources.spark.session import SparkWorkers
from resources.spark.worker_pool import Answer, Job, Work, WorkerPool


class Warmed(SparkWorkers):
    """`SparkWorkers` that return a pool after all of its workers have started."""

    def worker_pool(self, make: Callable[[], Work[Job, Answer]]) -> WorkerPool[Job, Answer]:
        """Return the workers of one role; see `SparkWorkers.worker_pool`."""
        worker_pool = super().worker_pool(make)
        worker_pool.start(self.cores)
        worker_pool.wait_started()
        return worker_pool
