"""`deltamirror verify`: is every record on the target that was on the source, once, in order?"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click

from deltamirror.cli.app import Console, common_options
from schemas.verification import EXPLAINED, KINDS, SIDES

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, TaskID

    from deltamirror.verification.digest_pass import ProgressListener
    from schemas.verification import FlowFindings, Verification

REPORT_INTERVAL_S = 10.0
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
@click.option("--no-resume", is_flag=True, help="Start over; do not resume an interrupted run.")
@common_options
@click.pass_context
def verify_command(
    context: click.Context,
    flows: tuple[str, ...],
    topics: tuple[str, ...],
    source: bool,
    staged: bool,
    target: bool,
    sample: float | None,
    no_resume: bool,
) -> None:
    """Compare source, stage and target; exit 1 where anything differs.

    Without --source, --staged or --target: all of it. It reads every topic once on each side and
    compares digests of ranges; ranges that differ are read again, record by record. One that was
    killed is gone on with by the next that is asked for the same.
    """
    console = context.ensure_object(Console)
    from deltamirror.context import MirrorContext
    from deltamirror.verification.verify import verify

    asked = {"source": source, "staged": staged, "target": target}
    sides = [side for side, is_asked in asked.items() if is_asked] or SIDES
    with closing(MirrorContext(console.config())) as mirror_context, _progress() as listener:
        found = verify(
            mirror_context,
            flows=flows or None,
            topics=topics or None,
            sides=sides,
            share=1.0 if sample is None else sample / 100,
            no_resume=no_resume,
            listener=listener,
        )
    console.show(found.to_json(), lambda: _verify_tables(found))
    if console.format == "json" and not found.is_same:
        context.exit(1)
    found.check()


class _ProgressBars:
    """A bar for each flow."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def started(self, flow: str, records: int, resumed: int) -> None:
        """Show a bar for *flow*."""
        self._tasks[flow] = self._progress.add_task(
            flow, total=max(1, records), completed=min(resumed, records)
        )

    def compared(self, flow: str, records: int) -> None:
        """Move the bar of *flow*."""
        self._progress.advance(self._tasks[flow], records)


class _ProgressLines:
    """A line on stderr now and then."""

    def __init__(self) -> None:
        self._reported_at = time.monotonic()
        self._records = self._done = 0

    def started(self, flow: str, records: int, resumed: int) -> None:
        """Say how much there is to do of *flow*, where somebody has begun with it."""
        self._records, self._done = records, resumed
        if resumed:
            click.echo(f"{flow}: goes on behind {resumed:,} of {records:,} records", err=True)

    def compared(self, flow: str, records: int) -> None:
        """Say how far *flow* is, if nothing was said for a while."""
        self._done = min(self._records, self._done + records)
        if time.monotonic() - self._reported_at > REPORT_INTERVAL_S:
            self._reported_at = time.monotonic()
            click.echo(f"{flow}: {self._done:,} of {self._records:,} records", err=True)


@contextmanager
def _progress() -> Iterator[ProgressListener]:
    """Give a reporter that draws bars on a terminal, or writes lines elsewhere."""
    if not sys.stderr.isatty():
        yield _ProgressLines()
        return
    from rich.console import Console as Rich
    from rich.progress import Progress

    with Progress(console=Rich(stderr=True), transient=True) as progress:
        yield _ProgressBars(progress)


def _verify_tables(found: Verification) -> RenderableType:
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
    shown += [line for flow in found.flows for line in _flow_notes(flow)]
    totals = found.totals
    told = ", ".join(f"{totals[kind]:,} {kind}" for kind in KINDS)
    return Group(*shown, f"verified {totals['records']:,} records: {told}")


def _flow_notes(flow: FlowFindings) -> Iterator[str]:
    """Yield what a reader of the numbers has to know."""
    if flow.resumed:
        yield f"{flow.flow}: {flow.resumed:,} of the records were compared by a verify before"
    if flow.sample < 1:
        yield f"{flow.flow}: a sample of {100 * flow.sample:g} % of each partition, taken at random"
