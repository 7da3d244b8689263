"""Parts of a comparison. Each part runs every rival in turn, in several rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from benchmarks.ground import Ground
from benchmarks.mm2 import catch_up, cost, latency, precision, results, rivals
from benchmarks.mm2.loads import Flights, Load
from benchmarks.mm2.rivals import EXACTLY_ONCE, OURS, RIVALS, STOCK, Rival

T = TypeVar("T")

FAILING_OVER = (STOCK, OURS)
"""Rivals whose groups fail over. The tuned ones write fewer offset syncs, for speed."""

Say = Callable[[str], None]
Part = dict[str, list[dict[str, Any]]]
"""Rows by kind: medians of each rival, and ratios between rivals."""


@dataclass(frozen=True)
class Stream:
    """A steady stream of *rate* records/s, measured for *for_s* seconds after *warm_s*."""

    rate: int
    warm_s: float = 10.0
    for_s: float = 20.0


def catch_ups(on: Ground, loads: Sequence[Load | Flights], rounds: int, say: Say) -> Iterator[Part]:
    """Measure the catch-up of every rival with each of *loads*, *rounds* times.

    Results are yielded after each load, because all loads together take hours.
    """
    for load in loads:
        say(f"filling {load.topic} with {load.records:,} records")
        load.fill(on)
        backlog = catch_up.backlog(on, load.topic, load.partitions)
        found = _in_turn(rounds, partial(_catch_up, on, load, backlog, say))
        case = asdict(load)
        backlog.topic.delete()
        yield {
            "catch_up": [results.catch_up_row(name, case, runs) for name, runs in found.items()],
            "catch_up_ratios": _ratios(case, _CATCH_UP_RATIOS, found),
        }


def _catch_up(
    on: Ground,
    load: Load | Flights,
    backlog: catch_up.Backlog,
    say: Say,
    rival: Rival,
    number: int,
) -> catch_up.CatchUp:
    alias = f"{rival.name}-{load.topic}-{number}"
    codec = f"target.producer.compression.type = {load.compression}\n"
    flow = rivals.flow(on, rival, alias, load.topic, more=codec)
    run = catch_up.measure(on, flow, backlog)
    flow.forget()
    say(
        f"  {rival.words}: {run.records_per_s:,.0f} records/s, first after {run.first_s:.1f} s, "
        f"last after {run.last_s:.1f} s"
    )
    return run


def latencies(on: Ground, streams: Sequence[Stream], rounds: int, say: Say) -> Part:
    """Measure the latency of every rival with each of *streams*, *rounds* times."""
    rows, ratios = [], []
    for stream in streams:
        say(f"a stream of {stream.rate:,} records a second")
        found = _in_turn(rounds, partial(_latency, on, stream, say))
        case = asdict(stream)
        rows += [results.latency_row(name, case, runs) for name, runs in found.items()]
        ratios += _ratios(case, _LATENCY_RATIOS, found)
    return {"latency": rows, "latency_ratios": ratios}


def _latency(on: Ground, stream: Stream, say: Say, rival: Rival, number: int) -> latency.Latency:
    alias = topic = f"stream-{stream.rate}-{rival.name}-{number}"
    flow = rivals.flow(on, rival, alias, topic)
    run = latency.measure(on, flow, topic, stream.rate, stream.warm_s, stream.for_s)
    flow.forget()
    say(
        f"  {rival.words}: p50 {run.p50 * 1e3:,.0f} ms, p99 {run.p99 * 1e3:,.0f} ms, "
        f"max {run.worst * 1e3:,.0f} ms"
    )
    return run


def failovers(on: Ground, load: Load, lags: Sequence[int], say: Say) -> Part:
    """Measure the failover of groups that lag *lags* records of *load*, for `FAILING_OVER`."""
    topic = f"failover-{load.topic}"
    say(f"filling {topic} with {load.records:,} records")
    on.fill(topic, load.records, load.size_bytes, partitions=load.partitions)
    backlog = catch_up.backlog(on, topic, load.partitions)
    rows = []
    for rival in FAILING_OVER:
        alias = f"{rival.name}-failover"
        groups = precision.GROUPS
        flow = rivals.flow(on, rival, alias, topic, groups=groups, more=precision.SYNCED)
        for found in precision.measure(on, flow, backlog, lags):
            rows.append(results.precision_row(rival.name, found))
            say(
                f"  {rival.words}, lag {found.lag:,}: {found.reread:,} read again, "
                f"{found.skipped:,} skipped, {found.unknown} partitions unknown"
            )
    return {"failover": rows}


def costs(on: Ground, loads: Sequence[Load], say: Say) -> Part:
    """Profile the CPU time of each of *loads* in MirrorMaker 2 and in deltamirror."""
    rows = []
    for load in loads:
        say(f"filling {load.topic} with {load.records:,} records")
        load.fill(on)
        backlog = catch_up.backlog(on, load.topic, load.partitions)
        found = {OURS.name: cost.ours(on, f"{OURS.name}-cost-{load.size_bytes}", backlog)}
        if EXACTLY_ONCE in RIVALS:
            alias = f"{EXACTLY_ONCE.name}-cost-{load.size_bytes}"
            found[EXACTLY_ONCE.name] = [cost.theirs(on, alias, backlog)]
        backlog.topic.delete()
        for name, steps in found.items():
            for spent in steps:
                say(f"  {name}, {spent.step}: {spent.cpu_s * 1e6 / spent.records:.2f} s / million")
                rows += results.cost_rows(name, load.size_bytes, spent)
    return {"cost": rows}


_CATCH_UP_RATIOS: dict[str, Callable[[catch_up.CatchUp], float]] = {
    "records_per_s": lambda run: run.records_per_s,
    "last_s": lambda run: run.last_s,
    "cpu_s": lambda run: run.cost.cpu_s,
    "peak_bytes": lambda run: run.peak_bytes,
}
_LATENCY_RATIOS: dict[str, Callable[[latency.Latency], float]] = {
    "p50": lambda run: run.p50,
    "p99": lambda run: run.p99,
    "cpu_s": lambda run: run.cost.cpu_s,
}


def _in_turn(rounds: int, measure: Callable[[Rival, int], T]) -> dict[str, list[T]]:
    """Measure every rival in every round; every second round in reverse order."""
    found: dict[str, list[T]] = {rival.name: [] for rival in RIVALS}
    for number in range(rounds):
        for rival in RIVALS if number % 2 == 0 else RIVALS[::-1]:
            found[rival.name].append(measure(rival, number))
    return found


def _ratios(
    case: Mapping[str, Any],
    measures: Mapping[str, Callable[[T], float]],
    found: Mapping[str, Sequence[T]],
) -> list[dict[str, Any]]:
    rows = []
    for measure, value in measures.items():
        values = {name: [value(run) for run in runs] for name, runs in found.items()}
        rows += results.ratios(case, measure, values)
    return rows
