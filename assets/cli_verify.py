"""`deltamirror verify`: is every record on the target that was on the source, once, in order?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click

from assets.console import Console, options
from schemas.verification import EXPLAINED, KINDS

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, TaskID

    from assets.verification import Reporter
    from schemas.verification import Verification


@click.command("verify")
@click.option("--flow", "flows", multiple=True, metavar="A->B", help="Only this flow; repeatable.")
@click.option("--topic", "topics", multiple=True, help="Only this source topic; repeatable.")
@click.option("--source", is_flag=True, help="The source against the stage.")
@click.option("--staged", is_flag=True, help="The stage against what was noted when it was made.")
@click.option("--target", is_flag=True, help="The target against the stage.")
@options
@click.pass_context
def verify_command(
    context: click.Context,
    flows: tuple[str, ...],
    topics: tuple[str, ...],
    source: bool,
    staged: bool,
    target: bool,
) -> None:
    """Compare source, stage and target record by record; exit 1 where anything differs.

    Without --source, --staged or --target: all of it. It reads every topic once on each side.
    """
    console = context.ensure_object(Console)
    from assets.site import Site
    from assets.verification import SIDES, verify

    asked = {"source": source, "staged": staged, "target": target}
    sides = [side for side, is_asked in asked.items() if is_asked] or SIDES
    with closing(Site(console.config())) as site, _progress() as reporter:
        found = verify(
            site, flows=flows or None, topics=topics or None, sides=sides, reporter=reporter
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

    def began(self, flow: str, records: int) -> None:
        """Show a bar for *flow*."""
        self._tasks[flow] = self._progress.add_task(flow, total=max(1, records))

    def compared(self, flow: str, records: int) -> None:
        """Move the bar of *flow*."""
        self._progress.advance(self._tasks[flow], records)


@contextmanager
def _progress() -> Iterator[Reporter | None]:
    """Give a reporter that draws bars on a terminal, or none."""
    if not sys.stderr.isatty():
        yield None
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
    differences = Table("flow", "partition", "offset", "difference", "what was found")
    for each in found.partitions:
        for d in each.differences:
            where = str(each.partition)
            differences.add_row(each.flow, where, str(d.offset), d.kind, d.detail)
    if differences.row_count:
        shown.append(differences)
    for error in found.errors:
        shown.append(f"{error['flow']}: {error['message']} {error['hint']}")
    totals = found.totals
    told = ", ".join(f"{totals[kind]:,} {kind}" for kind in KINDS)
    return Group(*shown, f"verified {totals['records']:,} records: {told}")
