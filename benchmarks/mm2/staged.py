"""Measure one growing lake: small ticks, memory, logs and start-up at each size."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ground import PARTITIONS, Ground, make_topic
from benchmarks.meter import Cost, Meter, PeakMemory
from benchmarks.mm2 import catch_up, rivals, ticks
from benchmarks.mm2.catch_up import Backlog
from benchmarks.mm2.remote import Topic
from benchmarks.mm2.rivals import Flow
from benchmarks.mm2.ticks import Ticks
from benchmarks.mm2.topics import Content
from resources.config.load import read_config
from resources.delta.lake import DeltaLake

TOPIC = "grows"
SIZE_BYTES = 100
RANDOM_BYTES = 30
CODEC = "lz4"
LINES = f"target.producer.compression.type = {CODEC}\n"
"""More lines of the file. With 30 random bytes in a value, 100 M records fit a small disk."""

SMALL = 1_000
RESTS_S = 10.0
_LEAST_PER_S = 20_000
"""Records per second below which a run times out."""


@dataclass(frozen=True)
class Grown:
    """Results of a lake of *records*. *cost* is that of its growth from the size before.

    *start_s* is the time from a process's start to its first record on the target. *rests_bytes* is
    the peak memory of that process, which mirrors some small batches. Sizes are those of files.
    """

    records: int
    cost: Cost
    peak_bytes: int
    start_s: float
    rests_bytes: int
    ticks: Ticks
    lake_bytes: int
    log_bytes: int
    commits: int


def measure(on: Ground, flow: Flow, sizes: Sequence[int]) -> Iterator[Grown]:
    """Let *flow* mirror `TOPIC` through one lake; yield the results at each of *sizes*, rising.

    At the end everything is compared with the source and deleted. Raises RuntimeError if the rival
    ended or the target differs; TimeoutError.
    """
    make_topic(on.source, TOPIC)
    growing = _Growing(on, flow)
    for size in sizes:
        yield growing.to(size)
    growing.compare()


class _Growing:
    """Source topic, remote topic and number of written records of one growing lake."""

    def __init__(self, on: Ground, flow: Flow) -> None:
        self._on, self._flow = on, flow
        self._source, self._remote = Topic(on.source, TOPIC), Topic(on.target, flow.remote(TOPIC))
        self._written = 0

    def to(self, size: int) -> Grown:
        """Grow to *size* records, and return the results."""
        grown = size - self._written
        self._write(grown)
        cost, peak_bytes = self._catch_up(grown)
        start_s, rests_bytes = self._start()
        found = ticks.measure(self._flow, lambda: self._write(SMALL))
        lake = DeltaLake(read_config(self._flow.file).lake).root
        logs = list(lake.glob("**/_delta_log/*"))
        return Grown(
            size,
            cost,
            peak_bytes,
            start_s,
            rests_bytes,
            found,
            lake_bytes=_bytes(lake.glob("**/*")),
            log_bytes=_bytes(logs),
            commits=sum(file.suffix == ".json" for file in logs),
        )

    def compare(self) -> None:
        """Compare the whole target with the source, in order, and delete both topics.

        Raises RuntimeError if they differ.
        """
        if self._remote.contents() != self._source.contents():
            raise RuntimeError(f"{self._flow.rival.words}: the target differs from the source")
        catch_up.verify(self._flow, catch_up.WAIT_S + self._written / _LEAST_PER_S)
        self._remote.delete()
        self._source.delete()

    def _write(self, records: int) -> int:
        numbers = range(self._written, self._written + records)
        self._on.write(TOPIC, numbers, SIZE_BYTES, PARTITIONS, CODEC, RANDOM_BYTES)
        self._written += records
        return records

    def _backlog(self) -> Backlog:
        # The source has no transaction markers, so its end offsets count its records.
        ends = self._source.ends()
        contents = {p: Content(end, 0) for p, end in ends.items()}
        return Backlog(self._source, self._source.lasts(ends), contents)

    def _catch_up(self, records: int) -> tuple[Cost, int]:
        """Return the cost of mirroring *records*, start included, and the peak memory in bytes."""
        wait_s = catch_up.WAIT_S + records / _LEAST_PER_S
        with rivals.running(self._flow) as process:
            meter = Meter(self._on.broker_pids, process.pid)
            memory = PeakMemory(process.pid)
            with memory.watch():
                catch_up.until_caught_up(self._remote, self._flow, process, self._backlog(), wait_s)
                cost = meter.stop(records)
        return cost, memory.peak_bytes

    def _start(self) -> tuple[float, int]:
        """Return the seconds from a start to the first record, and the peak memory in bytes."""
        before = sum(self._remote.ends().values())
        self._write(SMALL)
        begun = time.perf_counter()
        with rivals.running(self._flow) as process:
            memory = PeakMemory(process.pid)
            with memory.watch():
                first, _ = catch_up.until_first(self._remote, self._flow, process, before)
                rests_until = time.monotonic() + RESTS_S
                while time.monotonic() < rests_until:
                    self._write(SMALL)
                    time.sleep(1.0)
                catch_up.until_caught_up(self._remote, self._flow, process, self._backlog())
        return first - begun, memory.peak_bytes


def _bytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())
