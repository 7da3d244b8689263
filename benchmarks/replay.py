"""Measure replay alone: from a staged lake to an empty target, including the offset map."""

from __future__ import annotations

from benchmarks.ground import Ground
from benchmarks.meter import Cost, Meter
from benchmarks.warmed import Warmed
from deltamirror.context import MirrorContext
from deltamirror.replay.replayer import FlowReplayer
from resources.spark.session import SparkWorkers
from schemas.config.config import Config


def measure(
    ground: Ground, config: Config, records: int, workers: SparkWorkers | None = None
) -> Cost:
    """Return the cost of replaying the lake of *config*. Raises RuntimeError if not all is sent."""
    context = MirrorContext(config)
    replaying = FlowReplayer(context, config.flows[0], workers or Warmed(config.tasks_max))
    meter = Meter(ground.broker_pids)
    replaying.open()
    sent = 0
    while not (replayed := replaying.tick()).is_idle:
        sent += sum(move.records for move in replayed.moves)
    cost = meter.stop(sent)
    replaying.close()
    context.close()
    if sent != records:
        raise RuntimeError(
            f"replayed {sent} of {records} records: {dict(replaying.partition_errors)}"
        )
    return cost
