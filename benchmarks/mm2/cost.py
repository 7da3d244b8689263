"""Profile a record's CPU time: by file in deltamirror, by kind of thread in MirrorMaker 2."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks import consume, replay, stage
from benchmarks.ground import Ground
from benchmarks.inline import InlineWorkers, quiet_gc
from benchmarks.mm2 import catch_up, rivals
from benchmarks.mm2.catch_up import Backlog
from benchmarks.sampler import Sampler
from benchmarks.threads import Threads
from resources.config.load import read_config

LIBRDKAFKA, DELTALAKE = "librdkafka's threads", "deltalake's threads"
TASKS, SENDER = "task threads: consume, convert, send", "producers' network threads"
COLLECTOR, COMPILER = "garbage collector", "JIT compiler"
REST = "the rest"

_NATIVE = {"rdk:": LIBRDKAFKA, "tokio": DELTALAKE}
_JAVA = {
    "task-thread": TASKS,
    "kafka-producer": SENDER,
    "GC ": COLLECTOR,
    "G1 ": COLLECTOR,
    "C1 ": COMPILER,
    "C2 ": COMPILER,
}
"""Groups of threads by the prefix of their names."""


@dataclass
class Spent:
    """CPU seconds that *records* took in one *step*: in total, and by file or kind of thread."""

    step: str
    records: int
    cpu_s: float = 0.0
    places: dict[str, float] = field(default_factory=dict)


def ours(on: Ground, alias: str, backlog: Backlog) -> list[Spent]:
    """Stage and replay *backlog* in this process without Spark, and read it in a bare loop.

    Raises RuntimeError if the target differs from the source.
    """
    flow = rivals.flow(on, rivals.OURS, alias, backlog.topic.name)
    config = read_config(flow.file)
    records = backlog.records
    workers = InlineWorkers(config.tasks_max)
    with quiet_gc():
        bare = _bare(config.clusters[alias].consumer, backlog)
        with _profiled("stage", records) as staged:
            stage.measure(on, config, records, workers)
        with _profiled("replay", records) as replayed:
            replay.measure(on, config, records, workers)
    workers.release()
    remote = backlog.remote(on, flow)
    if remote.contents() != backlog.contents:
        raise RuntimeError(f"{flow.rival.words}: the target differs from the source")
    catch_up.verify(flow)
    remote.delete()
    flow.forget()
    return [bare, staged, replayed]


def theirs(on: Ground, alias: str, backlog: Backlog) -> Spent:
    """Let MirrorMaker 2 catch up, exactly once; measure from the first record on the target.

    Raises RuntimeError if it ended, or if the target differs from the source.
    """
    flow = rivals.flow(on, rivals.EXACTLY_ONCE, alias, backlog.topic.name)
    remote = backlog.remote(on, flow)
    with rivals.running(flow) as process:
        _, before = catch_up.until_first(remote, flow, process)
        begun = Threads.of(process.pid)
        catch_up.until_caught_up(remote, flow, process, backlog)
        places = Threads.of(process.pid).since(begun, lambda name: _group(name, _JAVA))
    if remote.contents() != backlog.contents:
        raise RuntimeError(f"{flow.rival.words}: the target differs from the source")
    remote.delete()
    flow.forget()
    return Spent("mirror", backlog.records - before, sum(places.values()), places)


def _bare(settings: Mapping[str, Any], backlog: Backlog) -> Spent:
    """Return the cost of reading *backlog* without reading the content of a message."""
    partitions = tuple(range(backlog.topic.partitions))
    begun = time.process_time()
    consume.consume(consume.Job(settings, backlog.topic.name, partitions, backlog.records))
    return Spent("bare consume loop", backlog.records, time.process_time() - begun)


@contextmanager
def _profiled(step: str, records: int) -> Iterator[Spent]:
    """Yield the cost of *step*; fill it with this process's CPU time in the block."""
    spent = Spent(step, records)
    before, begun = Threads.of(os.getpid()), time.process_time()
    with Sampler() as sampler:
        yield spent
    spent.cpu_s = time.process_time() - begun - sampler.own_s
    native = Threads.of(os.getpid()).since(
        before, lambda name: _group(name, _NATIVE), but=sampler.numbers
    )
    native.pop(REST, None)
    spent.places = {**sampler.files, **native}
    # This includes the time of threads that have ended since.
    spent.places[REST] = spent.cpu_s - sum(spent.places.values())


def _group(name: str, groups: Mapping[str, str]) -> str:
    return next((group for start, group in groups.items() if name.startswith(start)), REST)
