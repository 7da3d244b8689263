"""`deltamirror verify`: check that every record is on the target, once, in order, unaltered."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console as Rich
from rich.console import Group, RenderableType
from rich.table import Table

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import flows_option, number_columns
from schemas.verification import EXPLAINED, KINDS, SIDES

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from deltamirror.verification.digest_pass import ProgressListener
    from schemas.verification import FlowFindings, Verification

REPORT_INTERVAL_S = 10.0
"""Seconds between progress lines when stderr is not a terminal."""


@click.command("verify", epilog="Example: deltamirror verify --topic orders --sample 10")
@flows_option
@click.option("--topic", "topics", multiple=True, help="Only this source topic; repeatable.")
@click.option("--source", is_flag=True, help="Compare the source with the stage.")
@click.option(
    "--staged",
    is_flag=True,
    help="Compare the stage with the digests that were recorded when it was written.",
)
@click.option("--target", is_flag=True, help="Compare the target with the stage.")
@click.option(
    "--sample",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    help="Compare a random sample: about PERCENT of each partition, and at least one range of it.",
)
@click.option("--no-resume", is_flag=True, help="Start over. Do not resume an interrupted run.")
@common_options
@click.pass_context
def verify_command(
    context: click.Context,
    flow_names: tuple[str, ...],
    topics: tuple[str, ...],
    source: bool,
    staged: bool,
    target: bool,
    sample: float | None,
    no_resume: bool,
) -> None:
    """Compare source, stage and target record by record.

    Without --source, --staged or --target, all three are compared. The exit code is 1 if records
    differ. Verify reads every topic once on each side and compares digests of ranges. It reads
    ranges that differ again, record by record. If a verify was killed, the same command resumes it.
    """
    console = context.ensure_object(Console)
    from deltamirror.verification.verify import verify

    options = {"source": source, "staged": staged, "target": target}
    sides = [side for side, is_given in options.items() if is_given] or SIDES
    with console.open_context() as mirror_context, _progress() as listener:
        found = verify(
            mirror_context,
            flows=flow_names or None,
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
    """Show a progress bar for each flow."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def started(self, flow: str, records: int, resumed: int) -> None:
        self._tasks[flow] = self._progress.add_task(
            flow, total=max(1, records), completed=min(resumed, records)
        )

    def compared(self, flow: str, records: int) -> None:
        self._progress.advance(self._tasks[flow], records)


class _ProgressLines:
    """Print a progress line to stderr, at most every `REPORT_INTERVAL_S`."""

    def __init__(self) -> None:
        self._reported_at = time.monotonic()
        self._records = self._done = 0

    def started(self, flow: str, records: int, resumed: int) -> None:
        self._records, self._done = records, resumed
        if resumed:
            click.echo(f"{flow}: resumes after {resumed:,} of {records:,} records", err=True)

    def compared(self, flow: str, records: int) -> None:
        self._done = min(self._records, self._done + records)
        if time.monotonic() - self._reported_at > REPORT_INTERVAL_S:
            self._reported_at = time.monotonic()
            click.echo(f"{flow}: {self._done:,} of {self._records:,} records", err=True)


@contextmanager
def _progress() -> Iterator[ProgressListener]:
    """Yield a listener that shows bars if stderr is a terminal, else lines."""
    if not sys.stderr.isatty():
        yield _ProgressLines()
        return
    from rich.progress import Progress

    with Progress(console=Rich(stderr=True), transient=True) as progress:
        yield _ProgressBars(progress)


def _verify_tables(found: Verification) -> Group:
    columns = number_columns("partitions", "records", *KINDS)
    sums = Table("flow", "topic", *columns, "explained")
    for flow in found.flows:
        for topic in dict.fromkeys(each.partition.topic for each in flow.partitions):
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
    shown += [f"{error['flow']}: {error['message']} {error['hint']}" for error in found.errors]
    shown += [line for flow in found.flows for line in _flow_notes(flow)]
    totals = found.totals
    counts_text = ", ".join(f"{totals[kind]:,} {kind}" for kind in KINDS)
    return Group(*shown, f"verified {totals['records']:,} records: {counts_text}")


def _flow_notes(flow: FlowFindings) -> Iterator[str]:
    """Yield the notes that qualify the numbers of *flow*."""
    if flow.resumed:
        yield f"{flow.flow}: {flow.resumed:,} of the records were compared by an interrupted verify"
    if flow.sample < 1:
        yield f"{flow.flow}: a random sample of {100 * flow.sample:g} % of each partition"
