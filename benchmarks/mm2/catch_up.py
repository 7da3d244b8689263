"""Measure a backlog's way to the target: the times of its first and its last record."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.ground import Ground
from benchmarks.meter import Cost, Meter, PeakMemory
from benchmarks.mm2 import rivals
from benchmarks.mm2.remote import Record, Topic
from benchmarks.mm2.rivals import Flow
from benchmarks.mm2.topics import Content

WAIT_S = 300.0
_LOOK_S = 0.05


@dataclass(frozen=True)
class CatchUp:
    """A rival's run over a backlog of *records*, from its process's start.

    *first_s*: the first record is visible to a read_committed consumer of the target. *last_s*:
    the last record of every partition is visible. *before* records were visible at the first
    poll that saw any. *cost* includes the start. *peak_bytes* is the peak memory of the rival's
    processes together.
    """

    records: int
    first_s: float
    last_s: float
    before: int
    cost: Cost
    peak_bytes: int

    @property
    def records_per_s(self) -> float:
        """Return records per second from the first to the last poll, without *before*."""
        return (self.records - self.before) / (self.last_s - self.first_s)


@dataclass(frozen=True)
class Backlog:
    """A filled source topic: last record and content of each partition."""

    topic: Topic
    last: Mapping[int, Record | None]
    contents: Mapping[int, Content]

    @property
    def records(self) -> int:
        """Return the number of its records."""
        return sum(content.records for content in self.contents.values())

    def remote(self, on: Ground, flow: Flow) -> Topic:
        """Return the remote topic of *flow*."""
        return Topic(on.target, flow.remote(self.topic.name), self.topic.partitions)


def backlog(on: Ground, name: str, partitions: int) -> Backlog:
    """Read the content of the source topic *name*."""
    topic = Topic(on.source, name, partitions)
    return Backlog(topic, topic.lasts(topic.ends()), topic.contents())


def measure(on: Ground, flow: Flow, backlog: Backlog) -> CatchUp:
    """Run *flow* until all of *backlog* is on the target, and compare the contents.

    Raises RuntimeError if the rival ends or the target differs; TimeoutError.
    """
    remote = backlog.remote(on, flow)
    begun = time.perf_counter()
    with rivals.running(flow) as process:
        meter, memory = Meter(on.broker_pids, process.pid), PeakMemory(process.pid)
        with memory.watch():
            first, before = until_first(remote, flow, process)
            until_caught_up(remote, flow, process, backlog)
            last = time.perf_counter()
            cost = meter.stop(backlog.records)
    if remote.contents() != backlog.contents:
        raise RuntimeError(f"{flow.rival.words}: the target differs from the source")
    if flow.rival.is_ours:
        verify(flow)
    remote.delete()
    return CatchUp(backlog.records, first - begun, last - begun, before, cost, memory.peak_bytes)


def until_caught_up(
    remote: Topic,
    flow: Flow,
    process: subprocess.Popen[bytes],
    backlog: Backlog,
    wait_s: float = WAIT_S,
) -> None:
    """Wait until the last record of every partition is visible. Raises as `measure`."""
    give_up_at = time.monotonic() + wait_s
    left = {p: content.records for p, content in backlog.contents.items()}
    while left:
        # Transaction markers take offsets too, so the end offset does not prove the last record.
        ends = {p: end for p, end in remote.ends().items() if end >= left.get(p, end + 1)}
        for partition, last in remote.lasts(ends).items():
            if last == backlog.last[partition]:
                del left[partition]
            else:
                left[partition] = ends[partition] + 1
        if left:
            go_on(flow, process, give_up_at)


def verify(flow: Flow, wait_s: float = WAIT_S) -> None:
    """Run `deltamirror verify` on source, stage and target.

    Raises RuntimeError if they differ, subprocess.TimeoutExpired.
    """
    command = [sys.executable, "-m", "deltamirror", "--config", str(flow.file), "verify"]
    command += ["--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=wait_s)
    if done.returncode:
        raise RuntimeError(f"verify ended with {done.returncode}: {done.stdout}{done.stderr}")
    found = json.loads(done.stdout)
    wrong = {kind: found[kind] for kind in ("lost", "duplicated", "reordered", "altered")}
    if any(wrong.values()):
        raise RuntimeError(f"verify: {wrong}")


def until_first(
    remote: Topic, flow: Flow, process: subprocess.Popen[bytes], before: int = 0
) -> tuple[float, int]:
    """Wait for more than *before* visible offsets; return the time and the number of offsets.

    Offsets include transaction markers. Raises RuntimeError if the rival ends, TimeoutError.
    """
    give_up_at = time.monotonic() + WAIT_S
    while (visible := sum(remote.ends().values())) <= before:
        go_on(flow, process, give_up_at)
    return time.perf_counter(), visible


def go_on(flow: Flow, process: subprocess.Popen[bytes], give_up_at: float) -> None:
    """Wait for the next poll. Raises RuntimeError if the rival ended, TimeoutError."""
    rivals.check(flow, process)
    if time.monotonic() > give_up_at:
        raise TimeoutError(f"{flow.rival.words}: not caught up in time")
    time.sleep(_LOOK_S)
