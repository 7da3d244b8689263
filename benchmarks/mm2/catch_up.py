"""A backlog from the source to the target: when the first record is there, and when the last."""

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

    *first_s*: the first record is visible to a read_committed consumer of the target; *last_s*:
    the last one of every partition is. *before* of the records were visible at the first look
    that saw any. *cost* is of everything, starting included, and *peak_bytes* the most memory of
    the rival's processes together.
    """

    records: int
    first_s: float
    last_s: float
    before: int
    cost: Cost
    peak_bytes: int

    @property
    def records_per_s(self) -> float:
        """Records per second between the two looks: starting is not in it, nor what it brought."""
        return (self.records - self.before) / (self.last_s - self.first_s)


@dataclass(frozen=True)
class Backlog:
    """A filled source topic: its last record and its content in each partition."""

    topic: Topic
    last: Mapping[int, Record | None]
    contents: Mapping[int, Content]

    @property
    def records(self) -> int:
        """All of its records."""
        return sum(content.records for content in self.contents.values())

    def remote(self, on: Ground, flow: Flow) -> Topic:
        """Return the topic as *flow* makes it on the target."""
        return Topic(on.target, flow.remote(self.topic.name), self.topic.partitions)


def backlog(on: Ground, name: str, partitions: int) -> Backlog:
    """Read what the topic *name* of the source holds."""
    topic = Topic(on.source, name, partitions)
    return Backlog(topic, topic.lasts(topic.ends()), topic.contents())


def measure(on: Ground, flow: Flow, backlog: Backlog) -> CatchUp:
    """Run *flow* until all of *backlog* is on the target, and see that it is the very same.

    Raises RuntimeError where the rival ends, or the target differs; TimeoutError.
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
    """Return when the last record of every partition is visible. Raises as `measure`."""
    give_up_at = time.monotonic() + wait_s
    left = {p: content.records for p, content in backlog.contents.items()}
    while left:
        # Markers count in offsets: as many offsets as records do not say that all is there.
        ends = {p: end for p, end in remote.ends().items() if end >= left.get(p, end + 1)}
        for partition, last in remote.lasts(ends).items():
            if last == backlog.last[partition]:
                del left[partition]
            else:
                left[partition] = ends[partition] + 1
        if left:
            go_on(flow, process, give_up_at)


def verify(flow: Flow, wait_s: float = WAIT_S) -> None:
    """Let deltamirror's own auditor compare source, stage and target.

    Raises RuntimeError where they differ, subprocess.TimeoutExpired.
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
    """Return when more than *before* records are visible, and how many are (markers among them).

    Raises RuntimeError where the rival ends, TimeoutError.
    """
    give_up_at = time.monotonic() + WAIT_S
    while (visible := sum(remote.ends().values())) <= before:
        go_on(flow, process, give_up_at)
    return time.perf_counter(), visible


def go_on(flow: Flow, process: subprocess.Popen[bytes], give_up_at: float) -> None:
    """Wait until the next look. Raises RuntimeError: the rival ended; TimeoutError."""
    rivals.check(flow, process)
    if time.monotonic() > give_up_at:
        raise TimeoutError(f"{flow.rival.words}: not caught up in time")
    time.sleep(_LOOK_S)
