"""Measure a bare confluent-kafka consume loop, as the upper bound of staging's speed.

It runs in as many of the same workers as staging has tasks, with staging's consumer settings, and
does not read the content of a message.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.ground import PARTITIONS, Ground
from benchmarks.meter import Cost, Meter
from benchmarks.warmed import Warmed
from resources.kafka.range_reader import BATCH_SIZE, CONSUMER_SETTINGS, READ_TIMEOUT_S


@dataclass(frozen=True)
class Job:
    """Partitions of one topic to read from their beginning, with *records* records together."""

    settings: Mapping[str, Any]
    topic: str
    partitions: tuple[int, ...]
    records: int


def measure(ground: Ground, alias: str, topic: str, records: int) -> Cost:
    """Return the cost of reading *topic*."""
    config = ground.config(alias, topic)
    tasks = min(config.tasks_max, PARTITIONS)
    bundles = [tuple(range(PARTITIONS))[i::tasks] for i in range(tasks)]
    jobs = [
        Job(config.clusters[alias].consumer, topic, b, records * len(b) // PARTITIONS)
        for b in bundles
    ]
    worker_pool = Warmed(config.tasks_max).worker_pool(lambda: consume)
    meter = Meter(ground.broker_pids)
    read = sum(worker_pool.run(dict(enumerate(jobs))))
    cost = meter.stop(read)
    worker_pool.close()
    return cost


def consume(job: Job) -> Sequence[int]:
    """Read the records of *job*; return their number. Raises TimeoutError."""
    consumer = Consumer({**job.settings, **CONSUMER_SETTINGS})
    consumer.assign([TopicPartition(job.topic, p, 0) for p in job.partitions])
    read, deadline = 0, time.monotonic() + READ_TIMEOUT_S
    while read < job.records:
        messages = consumer.consume(BATCH_SIZE, 0.1)
        if messages:
            deadline = time.monotonic() + READ_TIMEOUT_S
            # Only the last message of a batch can have an error.
            error = messages[-1].error()
            if error is not None and not error.retriable() and read + len(messages) < job.records:
                raise KafkaException(error)
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{job.topic}: only {read} of {job.records} records arrived")
        read += len(messages)
    consumer.close()
    return [min(read, job.records)]
