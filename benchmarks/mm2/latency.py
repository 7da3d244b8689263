"""Measure latency in a steady stream: from a record's `produce` to its read on the target."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.ground import PARTITIONS, Ground, flush, make_topic, send
from benchmarks.meter import Cost, Meter, PeakMemory
from benchmarks.mm2 import rivals
from benchmarks.mm2.remote import Topic
from benchmarks.mm2.rivals import Flow

SIZE_BYTES = 100
WAIT_S = 120.0
_BATCH_S = 0.005  # records are handed over in step with the clock, so many at a time
_STAMP = struct.Struct("<d")  # time.perf_counter() at `produce`, of this process, which also reads
_PADDING = b"v" * (SIZE_BYTES - _STAMP.size)


@dataclass(frozen=True)
class Latency:
    """Seconds from `produce` to a read_committed consumer of the target, for *records* records.

    *rate* is the requested and *achieved* the measured rate of the writer, in records/s. *cost*
    and *peak_bytes* are the rival's during the measured part.
    """

    rate: int
    achieved: float
    records: int
    p50: float
    p95: float
    p99: float
    worst: float
    cost: Cost
    peak_bytes: int


def measure(on: Ground, flow: Flow, topic: str, rate: int, warm_s: float, for_s: float) -> Latency:
    """Write *rate* records a second through *flow*; measure after *warm_s* for *for_s* seconds.

    Raises RuntimeError if the rival ends or a record is missing, TimeoutError.
    """
    make_topic(on.source, topic)
    remote = Topic(on.target, flow.remote(topic))
    with rivals.running(flow) as process:
        writer = Writer(on, topic, rate)
        writer.write_once()
        give_up_at = time.monotonic() + WAIT_S
        while min(remote.ends().values()) == 0:
            rivals.check(flow, process)
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{flow.rival.words}: nothing came in {WAIT_S:.0f} s")
            time.sleep(0.1)
        with _Reader(on, remote.name) as reader:
            writer.write_for(warm_s)
            meter, memory = Meter(on.broker_pids, process.pid), PeakMemory(process.pid)
            begun = time.perf_counter()
            with memory.watch():
                written = writer.write_for(for_s)
                ended = time.perf_counter()
                cost = meter.stop(written)
            reader.read_until(writer.written)
    remote.delete()
    Topic(on.source, topic).delete()
    seconds = sorted(reader.delays(begun, ended))
    if len(seconds) != written:
        raise RuntimeError(f"{flow.rival.words}: {written} records written, {len(seconds)} read")
    return Latency(
        rate=rate,
        achieved=written / (ended - begun),
        records=written,
        p50=_share(seconds, 0.50),
        p95=_share(seconds, 0.95),
        p99=_share(seconds, 0.99),
        worst=seconds[-1],
        cost=cost,
        peak_bytes=memory.peak_bytes,
    )


class Writer:
    """Writer of records that carry the time of their `produce`, to all partitions in turn."""

    def __init__(self, on: Ground, topic: str, rate: int) -> None:
        self._topic, self._rate = topic, rate
        self._producer = Producer(
            {
                "bootstrap.servers": on.source.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,  # a retried record would be read twice
                "linger.ms": 1,
                "log_level": 2,
            }
        )
        self.written = 0

    def write_once(self, records: int = PARTITIONS) -> int:
        """Write *records* at once, by default one for each partition; return their number."""
        self._write(records)
        flush(self._producer)
        return records

    def write_for(self, seconds: float) -> int:
        """Write at the rate for *seconds*; return the number of records."""
        begun, before = time.perf_counter(), self.written
        while (passed := time.perf_counter() - begun) < seconds:
            self._write(int(passed * self._rate) - (self.written - before))
            self._producer.poll(0)
            time.sleep(_BATCH_S)
        flush(self._producer)
        return self.written - before

    def _write(self, records: int) -> None:
        for _ in range(records):
            value = _STAMP.pack(time.perf_counter()) + _PADDING
            send(self._producer, self._topic, self.written % PARTITIONS, b"k", value)
            self.written += 1


class _Reader:
    """Thread that reads the target and keeps each record's times of writing and reading."""

    def __init__(self, on: Ground, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": on.target.bootstrap_servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        self._seen: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def __enter__(self) -> _Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def read_until(self, records: int) -> None:
        """Wait until *records* were read in all. Raises TimeoutError."""
        give_up_at = time.monotonic() + WAIT_S
        while len(self._seen) < records:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{len(self._seen)} of {records} records arrived")
            time.sleep(0.05)

    def delays(self, begun: float, ended: float) -> list[float]:
        """Return the latency in seconds of each record written from *begun* to *ended*."""
        return [read - written for written, read in self._seen if begun <= written <= ended]

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(5_000, 0.002)
            now = time.perf_counter()
            for message in messages:
                value = message.value()
                if message.error() is None and value is not None:
                    self._seen.append((_STAMP.unpack_from(value)[0], now))


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
