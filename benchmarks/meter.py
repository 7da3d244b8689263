"""Meters of wall seconds, CPU seconds and memory, read from Linux's /proc."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.1


@dataclass(frozen=True)
class Cost:
    """Cost of *records*: wall seconds, CPU seconds of our processes, CPU seconds of the brokers."""

    records: int
    seconds: float
    cpu_s: float
    broker_cpu_s: float

    @property
    def records_per_s(self) -> float:
        """Return records per second."""
        return self.records / self.seconds

    @property
    def cpu_s_per_million(self) -> float:
        """Return the CPU seconds of driver, JVM and workers per million records."""
        return self.cpu_s * 1e6 / self.records

    @property
    def broker_cpu_s_per_million(self) -> float:
        """Return the CPU seconds of both brokers per million records."""
        return self.broker_cpu_s * 1e6 / self.records


class Meter:
    """Meter of a process with its children, and of *brokers* apart, from creation until `stop`.

    The process is *pid*, or this one.
    """

    def __init__(self, brokers: Sequence[int], pid: int | None = None) -> None:
        self._brokers = brokers
        self._pid = pid or os.getpid()
        self._cpu_s, self._broker_cpu_s = self._now()
        self._begun = time.perf_counter()

    def stop(self, records: int) -> Cost:
        """Return the cost of *records* since the meter was created."""
        seconds = time.perf_counter() - self._begun
        cpu_s, broker_cpu_s = self._now()
        return Cost(records, seconds, cpu_s - self._cpu_s, broker_cpu_s - self._broker_cpu_s)

    def _now(self) -> tuple[float, float]:
        brokers = sum(cpu_s(pid) for pid in self._brokers)
        ours = [pid for pid in tree(self._pid) if pid not in self._brokers]
        return sum(cpu_s(pid) for pid in ours), brokers


class PeakMemory:
    """Peak memory of a process and all its children together, in bytes.

    It is PSS: a page that several processes share counts once.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self.peak_bytes = 0

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Sample ten times a second while the block runs."""
        thread = threading.Thread(target=self._run, name="memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, sum(pss(pid) for pid in tree(self._pid)))


def tree(pid: int) -> list[int]:
    """Return *pid* and all its living descendants."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end between the listing and the reading.
        with contextlib.suppress(OSError, IndexError):
            children.setdefault(int(_stat(int(folder.name))[1]), []).append(int(folder.name))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of *pid* and of its children that have ended."""
    with contextlib.suppress(OSError, IndexError):
        return sum(int(ticks) for ticks in _stat(pid)[11:15]) / TICKS_PER_S
    return 0.0


def _stat(pid: int) -> list[str]:
    # The name in brackets may have blanks, so split only the rest.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def pss(pid: int) -> int:
    """Return the PSS of *pid* in bytes: a page that several processes share counts once."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
