"""`python -m benchmarks`: fill real brokers, measure, print and save the numbers."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import both, consume, delay, memory, replay, report, stage
from benchmarks.ground import PARTITIONS, Ground, ground
from benchmarks.meter import Cost

MOST_RECORDS = 1_000_000
MOST_BYTES = 300 * 2**20
"""Default size of a measure: so many records, or as many as these bytes hold, if fewer."""

WARM_RECORDS = 40_000
TICKS = 10
BACKLOG_BYTES = 1024
"""Size of the values in the backlogs whose memory is measured."""

_say = Console(stderr=True).print


@click.command(context_settings={"show_default": True})
@click.option("--sizes", default="100,1024", help="Bytes of a record's value, with commas.")
@click.option(
    "--records", type=click.IntRange(1000), help="Records of each measure. [1 M, or 300 MiB]"
)
@click.option("--rounds", type=click.IntRange(1), default=3, help="The median is reported.")
@click.option("--readme", is_flag=True, help="Also write the numbers to README.md.")
def main(sizes: str, records: int | None, rounds: int, readme: bool) -> None:
    """Measure records/s and CPU of staging, replay and both, their delay and their memory."""
    # Handle SIGTERM as Ctrl-C, so that the brokers end with the run.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="deltamirror-bench-") as home:
        result = run(Path(home), [int(size) for size in sizes.split(",")], records, rounds)
    result["command"] = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    shown = Console(width=None if sys.stdout.isatty() else 120)
    shown.print(report.table(result))
    for sentence in report.sentences(result):
        shown.print(sentence)
    file = report.save(result)
    shown.print(f"kept in {file.relative_to(report.ROOT)}")
    if readme:
        report.fill_pages(result)


def run(home: Path, sizes: Sequence[int], records: int | None, rounds: int) -> dict[str, Any]:
    """Measure everything in one run on two brokers in *home*; return the numbers."""
    begun = time.perf_counter()
    with ground(home) as on:
        _warm(on, min(_of(100, records), WARM_RECORDS))
        costs = {size: _rounds(on, size, _of(size, records), rounds) for size in sizes}
        _say("delay of a few new records")
        seconds = delay.measure(on, "delay", "delay", TICKS)
        peaks = [_peak(on, n) for n in ((records or MOST_RECORDS) // 4, records or MOST_RECORDS)]
    return {
        "date": date.today().isoformat(),
        "commit": report.commit(),
        "machine": report.machine(),
        "partitions": PARTITIONS,
        "rounds": rounds,
        "seconds": round(time.perf_counter() - begun),
        "throughput": [
            report.throughput(measure, size, found)
            for measure in report.WORDS
            for size in sizes
            for found in [costs[size][measure]]
        ],
        "delay_s": {
            **report.spread(seconds, 3),
            "ticks": len(seconds),
            "new_records": delay.RECORDS * PARTITIONS,
        },
        "memory": peaks,
    }


def _warm(on: Ground, records: int) -> None:
    """Start Spark and its workers, and run every measure once, because the first is slower."""
    _say("warming up")
    on.fill("warm", records, 100)
    _round(on, "warm", "warm", records)


def _rounds(on: Ground, size: int, records: int, rounds: int) -> dict[str, list[Cost]]:
    """Return the costs by measure, a list with one cost for each round, on one filled topic."""
    _say(f"filling a topic with {records:,} records of {size:,} B")
    topic = f"size{size}"
    on.fill(topic, records, size)
    found: dict[str, list[Cost]] = {measure: [] for measure in report.WORDS}
    for number in range(rounds):
        for measure, cost in _round(on, f"{topic}-{number}", topic, records).items():
            found[measure].append(cost)
            _say(f"  {measure}: {cost.records_per_s:,.0f} records/s")
    return found


def _round(on: Ground, alias: str, topic: str, records: int) -> dict[str, Cost]:
    config = on.config(f"{alias}-apart", topic)
    return {
        "consume": consume.measure(on, f"{alias}-bare", topic, records),
        "stage": stage.measure(on, config, records),
        "replay": replay.measure(on, config, records),
        "both": both.measure(on, on.config(f"{alias}-both", topic), records),
    }


def _peak(on: Ground, records: int) -> dict[str, Any]:
    _say(f"memory with a backlog of {records:,} records of {BACKLOG_BYTES:,} B")
    name = f"backlog{records}"
    on.fill(name, records, BACKLOG_BYTES)
    peak = memory.measure(on, name, name)
    return {
        "records": records,
        "size_bytes": BACKLOG_BYTES,
        "peak_mib": round(peak / 2**20),
    }


def _of(size: int, records: int | None) -> int:
    """Return the number of records of *size* bytes to measure with, a multiple of `PARTITIONS`."""
    wanted = records or min(MOST_RECORDS, MOST_BYTES // size)
    return wanted // PARTITIONS * PARTITIONS


if __name__ == "__main__":
    main()
