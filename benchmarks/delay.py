"""Measure the delay of a few new records from source to target, with loops that were idle."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, TopicPartition

from benchmarks.ground import PARTITIONS, TARGET, Ground, flush, make_topic, producer_of, send
from deltamirror.run.supervisor import Mirror
from schemas.config.config import Config

RECORDS = 500
"""New records per partition."""

_WAIT_S = 60.0
_PAUSE_S = 0.7  # longer than the loops' interval and no multiple of it, so that they are idle


def measure(ground: Ground, alias: str, topic: str, times: int) -> list[float]:
    """Return the seconds of *times* ticks, each from the end of the write to the last record read.

    The first tick, which creates the remote topic, is left out. Raises TimeoutError.
    """
    make_topic(ground.source, topic)
    config = ground.config(alias, topic)
    stop = threading.Event()
    loops = threading.Thread(target=Mirror(config, stop=stop).run, daemon=True)
    loops.start()
    try:
        return _ticks(ground, config, topic, times + 1)[1:]
    finally:
        stop.set()
        loops.join(_WAIT_S)


def _ticks(ground: Ground, config: Config, topic: str, times: int) -> list[float]:
    remote = config.flows[0].remote_topic(topic)
    producer = producer_of(ground.source)
    reader = Consumer(
        {
            **config.clusters[TARGET].consumer,
            "group.id": "deltamirror-bench",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "topic.metadata.refresh.interval.ms": 200,
            "log_level": 0,  # the remote topic does not exist before the first tick
        }
    )
    reader.assign([TopicPartition(remote, p, 0) for p in range(PARTITIONS)])
    seconds = []
    for tick in range(times):
        for i in range(RECORDS * PARTITIONS):
            send(producer, topic, i % PARTITIONS, b"%d-%d" % (tick, i), b"v" * 100)
        flush(producer)
        begun = time.perf_counter()
        _read(reader, RECORDS * PARTITIONS)
        seconds.append(time.perf_counter() - begun)
        time.sleep(_PAUSE_S)
    reader.close()
    return seconds


def _read(reader: Consumer, records: int) -> None:
    deadline = time.monotonic() + _WAIT_S
    while records > 0:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            records -= 1
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{records} records did not arrive in {_WAIT_S:.0f} s")
