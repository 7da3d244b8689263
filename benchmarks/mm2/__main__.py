"""`python -m benchmarks.mm2`: deltamirror and MirrorMaker 2 on the same brokers, in turn."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import report
from benchmarks.ground import Ground, ground
from benchmarks.mm2 import growth, pages, parts, results, summary
from benchmarks.mm2.growth import Growth
from benchmarks.mm2.loads import Flights, Load
from benchmarks.mm2.parts import Part, Say, Stream

LAGS = (0, 100, 5_000, 72_000)
FAILOVER = Load(size_bytes=100, records=1_000_000)
COSTS = (Load(100, 2_000_000), Load(1_024, 400_000))
GROWTH = Growth()

_say: Say = Console(stderr=True).print


@dataclass(frozen=True)
class Plan:
    """Loads, streams and rounds of a comparison."""

    loads: Sequence[Load | Flights]
    streams: Sequence[Stream]
    failover: Load
    rounds: int
    growth: Growth = GROWTH
    costs: Sequence[Load] = COSTS


SHORT = Plan(
    loads=(Load(100, 4_000_000), Load(1_024, 800_000)),
    streams=(Stream(10_000),),
    failover=FAILOVER,
    rounds=3,
)
SIZES = ((100, 2_000_000), (1_024, 400_000), (10_240, 60_000))
FULL = Plan(
    loads=(
        *(Load(*size, partitions) for size in SIZES for partitions in (1, 4, 32)),
        *(Load(*size, compression=codec) for size in SIZES for codec in ("lz4", "zstd")),
        Flights(),
    ),
    streams=tuple(Stream(rate, for_s=30.0) for rate in (1_000, 10_000, 50_000)),
    failover=FAILOVER,
    rounds=3,
)

PARTS: dict[str, Callable[[Ground, Plan], Iterable[Part]]] = {
    "catch-up": lambda on, plan: parts.catch_ups(on, plan.loads, plan.rounds, _say),
    "latency": lambda on, plan: [parts.latencies(on, plan.streams, plan.rounds, _say)],
    "failover": lambda on, plan: [parts.failovers(on, plan.failover, LAGS, _say)],
}
FULL_PARTS: dict[str, Callable[[Ground, Plan], Iterable[Part]]] = {
    **PARTS,
    "growth": lambda on, plan: [growth.measure(on, plan.growth, plan.rounds, _say)],
    "cost": lambda on, plan: [parts.costs(on, plan.costs, _say)],
}
"""Parts by name. Each yields its results as soon as they are measured."""


@click.command(context_settings={"show_default": True})
@click.option(
    "--full", is_flag=True, help="Measure every size, codec and rate, growth and cost: hours."
)
@click.option(
    "--part",
    "chosen",
    multiple=True,
    type=click.Choice(list(FULL_PARTS)),
    help="Only this part. [all]",
)
@click.option(
    "--load",
    "named",
    multiple=True,
    metavar="NAME",
    help="Only this load of catch-up, as 100-4-none. [all]",
)
@click.option("--rounds", type=click.IntRange(1), help="Their median is reported. [3]")
@click.option("--readme", is_flag=True, help="Put the numbers into the README pages, too.")
def main(
    full: bool, chosen: Sequence[str], named: Sequence[str], rounds: int | None, readme: bool
) -> None:
    """Compare deltamirror with MirrorMaker 2: catch-up, latency, failover precision."""
    # Handle SIGTERM as Ctrl-C, so that brokers and rivals end with the run.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan, measured = (FULL, FULL_PARTS) if full else (SHORT, PARTS)
    if unknown := [name for name in chosen if name not in measured]:
        raise click.UsageError(f"--part {unknown[0]} is a part of --full only")
    if rounds is not None:
        plan = replace(plan, rounds=rounds)
    if named:
        chosen, plan = chosen or ["catch-up"], replace(plan, loads=_loads(plan, named))
    name = "mm2-full" if full else "mm2"
    command = shlex.join(["python", "-m", "benchmarks.mm2", *sys.argv[1:]])
    former = report.newest(name) if chosen else None
    with (
        tempfile.TemporaryDirectory(prefix="deltamirror-bench-") as home,
        closing(run(Path(home), plan, dict.fromkeys(chosen or measured))) as steps,
    ):
        for found in steps:  # results are kept even if the next step fails
            result = results.joined(former, {**found, "command": command})
            file = report.save(result, name=name)
    click.echo(pages.markdown(result))
    _say(f"kept in {file.relative_to(report.ROOT)}")
    if readme:
        pages.fill(pages.markdown(result), name)
        if full and summary.is_whole(result):
            pages.fill(summary.markdown(result), summary.NAME, summary.PAGE)


def run(home: Path, plan: Plan, chosen: Iterable[str]) -> Generator[dict[str, Any]]:
    """Yield the numbers of the *chosen* parts, measured in one run on two brokers in *home*.

    After each step it yields the numbers of all steps so far.
    """
    begun = time.perf_counter()
    began_with = {"commit": report.commit(), "machine": report.machine()}
    rows: Part = {}
    with ground(home) as on:
        for part in (part for name in chosen for part in FULL_PARTS[name](on, plan)):
            rows = {**rows, **{kind: [*rows.get(kind, []), *more] for kind, more in part.items()}}
            yield {
                "date": date.today().isoformat(),
                **began_with,
                "rounds": plan.rounds,
                "seconds": round(time.perf_counter() - begun),
                **rows,
            }


def _loads(plan: Plan, named: Sequence[str]) -> list[Load | Flights]:
    """Return the loads of *plan* that are *named*. Raises click.UsageError."""
    known = {load.name: load for load in plan.loads}
    if unknown := [name for name in named if name not in known]:
        raise click.UsageError(f"--load {unknown[0]}: there are {', '.join(known)}")
    return [load for name, load in known.items() if name in named]


if __name__ == "__main__":
    main()
