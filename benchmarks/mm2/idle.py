"""Measure the cost of many topics, all but one of them idle."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.ground import PARTITIONS, Ground, flush, make_topic, producer_of, send
from benchmarks.meter import Cost, Meter, PeakMemory
from benchmarks.mm2 import catch_up, rivals, ticks
from benchmarks.mm2.latency import Writer
from benchmarks.mm2.rivals import Flow
from benchmarks.mm2.ticks import Ticks
from benchmarks.mm2.topics import ANSWER_S, Topics

RECORDS = 5
RATE = 100
WAIT_S = 600.0


@dataclass(frozen=True)
class Idle:
    """Results of a rival with many topics of `RECORDS` records, and one with `RATE` records/s.

    *all_s* is the time from its start until every topic's first record is visible on the target.
    *cost* is that of the measured time after it, *peak_bytes* that of the whole run. *ticks* are
    deltamirror's.
    """

    all_s: float
    cost: Cost
    peak_bytes: int
    ticks: Ticks | None


@dataclass(frozen=True)
class Field:
    """*count* topics of the source: one busy topic, and idle topics with one partition each."""

    count: int

    @property
    def busy(self) -> str:
        """Return the name of the busy topic."""
        return f"idle-{self.count}-busy"

    @property
    def idle(self) -> list[str]:
        """Return the names of the idle topics."""
        return [f"idle-{self.count}-{i}" for i in range(1, self.count)]

    def fill(self, on: Ground) -> None:
        """Create all topics, and write the records of the idle ones."""
        make_topic(on.source, self.busy)
        admin = AdminClient({"bootstrap.servers": on.source.bootstrap_servers})
        made = admin.create_topics([NewTopic(name, 1, 1) for name in self.idle])
        for answer in made.values():
            answer.result(ANSWER_S)
        producer = producer_of(on.source)
        for name in self.idle:
            for i in range(RECORDS):
                send(producer, name, 0, b"%010d" % i, name.encode())
        flush(producer)

    def delete(self, on: Ground) -> None:
        """Delete the topics on the source."""
        Topics(on.source, [self.busy, *self.idle]).delete()

    def pairs(self, on: Ground, flow: Flow) -> Iterator[tuple[Topics, Topics]]:
        """Yield pairs of source and target topics whose contents have to be equal."""
        for names, partitions in ((self.idle, 1), ([self.busy], PARTITIONS)):
            remote = [flow.remote(name) for name in names]
            yield Topics(on.source, names, partitions), Topics(on.target, remote, partitions)


def measure(on: Ground, flow: Flow, field: Field, warm_s: float, for_s: float) -> Idle:
    """Run *flow* until every topic of *field* arrived; wait *warm_s*; then measure *for_s*.

    Raises RuntimeError if the rival ends or the target differs; TimeoutError.
    """
    writer = Writer(on, field.busy, RATE)
    writer.write_once()
    begun = time.perf_counter()
    with rivals.running(flow) as process:
        memory = PeakMemory(process.pid)
        with memory.watch():
            for _, remote in field.pairs(on, flow):
                _until_there(remote, flow, process)
            all_s = time.perf_counter() - begun
            writer.write_for(warm_s)
            meter = Meter(on.broker_pids, process.pid)
            cost = meter.stop(writer.write_for(for_s))
            backlog = catch_up.backlog(on, field.busy, PARTITIONS)
            catch_up.until_caught_up(backlog.remote(on, flow), flow, process, backlog)
    found = None
    if flow.rival.is_ours:
        found = ticks.measure(flow, writer.write_once)
    for source, remote in field.pairs(on, flow):
        there = {(flow.remote(name), p): c for (name, p), c in source.contents().items()}
        if remote.contents() != there:
            raise RuntimeError(f"{flow.rival.words}: the target differs from the source")
    if flow.rival.is_ours:
        catch_up.verify(flow)
    for _, remote in field.pairs(on, flow):
        remote.delete()
    return Idle(all_s, cost, memory.peak_bytes, found)


def _until_there(remote: Topics, flow: Flow, process: subprocess.Popen[bytes]) -> None:
    """Wait until every topic has a visible record."""
    give_up_at = time.monotonic() + WAIT_S
    while not (remote.are_there() and all(remote.ends().values())):
        catch_up.go_on(flow, process, give_up_at)
