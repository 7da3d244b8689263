"""Measure staging alone: from the source broker into an empty lake, including the commits."""

from __future__ import annotations

from benchmarks.ground import Ground
from benchmarks.meter import Cost, Meter
from benchmarks.warmed import Warmed
from deltamirror.context import MirrorContext
from deltamirror.staging.stager import SourceStager
from resources.spark.session import SparkWorkers
from schemas.config.config import Config


def measure(
    ground: Ground, config: Config, records: int, workers: SparkWorkers | None = None
) -> Cost:
    """Return the cost of staging the topic of *config*. Raises RuntimeError if not complete."""
    context = MirrorContext(config)
    (alias,) = config.sources()
    staging = SourceStager(context, alias, workers or Warmed(config.tasks_max))
    meter = Meter(ground.broker_pids)
    staging.open()
    staged = 0
    while segments := staging.tick().segments:
        staged += sum(segment.count for segment in segments)
    cost = meter.stop(staged)
    staging.close()
    context.close()
    if staged != records:
        raise RuntimeError(
            f"staged {staged} of {records} records: {dict(staging.partition_errors)}"
        )
    return cost
