"""`deltamirror verify`: is every record on the target that was on the source, once, in order?"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click

from deltamirror.cli.app import Console, options
from schemas.verification import EXPLAINED, KINDS, SIDES

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, TaskID

    from deltamirror.verification.digest_pass import Reporter
    from schemas.verification import FlowFindings, Verification

TELL_S = 10.0
"""How often a comparison says how far it is where nobody looks at a terminal."""


@click.command("verify")
@click.option("--flow", "flows", multiple=True, metavar="A->B", help="Only this flow; repeatable.")
@click.option("--topic", "topics", multiple=True, help="Only this source topic; repeatable.")
@click.option("--source", is_flag=True, help="The source against the stage.")
@click.option("--staged", is_flag=True, help="The stage against what was noted when it was made.")
@click.option("--target", is_flag=True, help="The target against the stage.")
@click.option(
    "--sample",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    help="Only about so much of each partition, taken at random, and some of each.",
)
@click.option("--anew", is_flag=True, help="Do not go on where a verify was killed.")
@options
@click.pass_context
def verify_command(
    context: click.Context,
    flows: tuple[str, ...],
    topics: tuple[str, ...],
    source: bool,
    staged: bool,
    target: bool,
    sample: float | None,
    anew: bool,
) -> None:
    """Compare source, stage and target; exit 1 where anything differs.

    Without --source, --staged or --target: all of it. It reads every topic once on each side and
    compares digests of ranges; ranges that differ are read again, record by record. One that was
    killed is gone on with by the next that is asked for the same.
    """
    console = context.ensure_object(Console)
    from deltamirror.context import Site
    from deltamirror.verification.verify import verify

    asked = {"source": source, "staged": staged, "target": target}
    sides = [side for side, is_asked in asked.items() if is_asked] or SIDES
    with closing(Site(console.config())) as site, _progress() as reporter:
        found = verify(
            site,
            flows=flows or None,
            topics=topics or None,
            sides=sides,
            share=1.0 if sample is None else sample / 100,
            anew=anew,
            reporter=reporter,
        )
    console.show(found.to_json(), lambda: _tables(found))
    if console.format == "json" and not found.is_same:
        context.exit(1)
    found.check()


class _Bars:
    """A bar for each flow."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def began(self, flow: str, records: int, resumed: int) -> None:
        """Show a bar for *flow*."""
        self._tasks[flow] = self._progress.add_task(
            flow, total=max(1, records), completed=min(resumed, records)
        )

    def compared(self, flow: str, records: int) -> None:
        """Move the bar of *flow*."""
        self._progress.advance(self._tasks[flow], records)


class _Lines:
    """A line on stderr now and then."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()
        self._records = self._done = 0

    def began(self, flow: str, records: int, resumed: int) -> None:
        """Say how much there is to do of *flow*, where somebody has begun with it."""
        self._records, self._done = records, resumed
        if resumed:
            click.echo(f"{flow}: goes on behind {resumed:,} of {records:,} records", err=True)

    def compared(self, flow: str, records: int) -> None:
        """Say how far *flow* is, if nothing was said for a while."""
        self._done = min(self._records, self._done + records)
        if time.monotonic() - self._told_at > TELL_S:
            self._told_at = time.monotonic()
            click.echo(f"{flow}: {self._done:,} of {self._records:,} records", err=True)


@contextmanager
def _progress() -> Iterator[Reporter]:
    """Give a reporter that draws bars on a terminal, or writes lines elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console as Rich
    from rich.progress import Progress

    with Progress(console=Rich(stderr=True), transient=True) as progress:
        yield _Bars(progress)


def _tables(found: Verification) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    sums = Table("flow", "topic")
    for name in ("partitions", "records", *KINDS):
        sums.add_column(name, justify="right")
    sums.add_column("explained")
    for flow in found.flows:
        topics = dict.fromkeys(each.partition.topic for each in flow.partitions)
        for topic in topics:
            members = [each for each in flow.partitions if each.partition.topic == topic]
            counts = {n: sum(each.counts[n] for each in members) for n in (*KINDS, *EXPLAINED)}
            sums.add_row(
                flow.flow,
                topic,
                str(len(members)),
                f"{sum(each.records for each in members):,}",
                *(f"{counts[kind]:,}" for kind in KINDS),
                ", ".join(f"{counts[n]:,} {n.replace('_', ' ')}" for n in EXPLAINED if counts[n]),
                style=None if all(each.is_same for each in members) else "red",
            )
    shown: list[RenderableType] = [sums]
    differences = Table("flow", "partition", "offset", "difference", "between", "what was found")
    for each in found.partitions:
        for d in each.differences:
            where, sides = str(each.partition), ", ".join(d.sides)
            differences.add_row(each.flow, where, str(d.offset), d.kind, sides, d.detail)
    if differences.row_count:
        shown.append(differences)
    for error in found.errors:
        shown.append(f"{error['flow']}: {error['message']} {error['hint']}")
    shown += [line for flow in found.flows for line in _remarks(flow)]
    totals = found.totals
    told = ", ".join(f"{totals[kind]:,} {kind}" for kind in KINDS)
    return Group(*shown, f"verified {totals['records']:,} records: {told}")


def _remarks(flow: FlowFindings) -> Iterator[str]:
    """Yield what a reader of the numbers has to know."""
    if flow.resumed:
        yield f"{flow.flow}: {flow.resumed:,} of the records were compared by a verify before"
    if flow.sample < 1:
        yield f"{flow.flow}: a sample of {100 * flow.sample:g} % of each partition, taken at random"
