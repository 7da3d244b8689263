"""`python -m benchmarks.verify`: speed of `verify` on sides that agree, with both clusters read."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from benchmarks.ground import Ground
    from benchmarks.meter import Cost
    from schemas.config.config import Config

# The processes of `verify` import this file again, because it is the main module. So functions
# import what they need, as the commands do.


@click.command(context_settings={"show_default": True})
@click.option("--size", default=100, type=click.IntRange(1), help="Bytes of a record's value.")
@click.option("--records", default=2_000_000, type=click.IntRange(1000), help="Records to compare.")
@click.option("--rounds", default=3, type=click.IntRange(1), help="The median is reported.")
def main(size: int, records: int, rounds: int) -> None:
    """Mirror one topic, then verify it *rounds* times: records/s, CPU, both clusters read."""
    # Handle SIGTERM as Ctrl-C, so that the brokers end with the run.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from benchmarks import report
    from benchmarks.ground import PARTITIONS

    records = records // PARTITIONS * PARTITIONS
    with tempfile.TemporaryDirectory(prefix="deltamirror-bench-") as home:
        costs = run(Path(home), size, records, rounds)
    speed = report.spread([cost.records_per_s for cost in costs], 0)
    cpu = report.spread([cost.cpu_s_per_million for cost in costs], 2)
    brokers = report.spread([cost.broker_cpu_s_per_million for cost in costs], 2)
    print(
        f"verify, values of {size:,} B: {speed['median']:,.0f} records/s "
        f"({speed['low']:,.0f} - {speed['high']:,.0f}), CPU {cpu['median']:.2f} s per million, "
        f"brokers' {brokers['median']:.2f}; {rounds} rounds of {records:,} records"
    )


def run(home: Path, size: int, records: int, rounds: int) -> list[Cost]:
    """Return the cost of each round, on two brokers in *home*."""
    from benchmarks import both
    from benchmarks.ground import ground

    with ground(home) as on:
        _say(f"filling and mirroring {records:,} records of {size:,} B")
        on.fill("verified", records, size)
        config = on.config("origin", "verified")
        both.measure(on, config, records)
        costs = []
        for _ in range(rounds):
            costs.append(measure(on, config, records))
            _say(f"  verify: {costs[-1].records_per_s:,.0f} records/s")
    return costs


def measure(ground: Ground, config: Config, records: int) -> Cost:
    """Return the cost of comparing all sides. Raises RuntimeError if they differ."""
    from benchmarks.meter import Meter
    from deltamirror.context import MirrorContext
    from deltamirror.verification.verify import verify

    context = MirrorContext(config)
    meter = Meter(ground.broker_pids)
    found = verify(context)
    cost = meter.stop(found.totals["records"])
    context.close()
    if not found.is_same or cost.records != records:
        raise RuntimeError(f"expected {records} records without differences: {found.to_json()}")
    return cost


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
