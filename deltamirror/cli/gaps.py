"""`deltamirror gaps`: list source offsets without a staged record, and their causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import check_source

if TYPE_CHECKING:
    from rich.table import Table

    from deltamirror.context import MirrorContext


@click.command("gaps", epilog="Example: deltamirror gaps --cluster us-east --topic orders")
@click.option("--cluster", "alias", metavar="A", help="Only this source cluster.")
@click.option("--topic", metavar="T", help="Only this topic.")
@common_options
@click.pass_obj
def gaps_command(console: Console, alias: str | None, topic: str | None) -> None:
    """Show source offsets without a staged record.

    Each gap has a cause, such as transaction markers or an accepted gap. The table adds up the
    gaps of a partition by cause; JSON has every interval. docs/tables.md has the same query as SQL.
    """
    from deltamirror.context import MirrorContext

    config = console.config()
    sources = config.sources()
    if alias is not None:
        check_source(config, alias)
    with closing(MirrorContext(config)) as context:
        rows = list(_gaps(context, sources if alias is None else [alias], topic))
    console.show({"gaps": rows}, lambda: _gaps_table(rows))


def _gaps(
    context: MirrorContext, aliases: Sequence[str], topic: str | None
) -> Iterator[dict[str, Any]]:
    from resources.delta.views import query_view
    from schemas.views import GAPS

    for alias in aliases:
        for row in query_view(GAPS, context.lake, alias, topic).to_pylist():
            yield {"cluster": alias, **row}


def _gaps_table(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table("cluster", "partition", "cause")
    for name in ("intervals", "offsets", "from", "to"):
        table.add_column(name, justify="right")

    def key(row: dict[str, Any]) -> tuple[str, str, int, str]:
        return row["cluster"], row["topic"], row["partition"], row["cause"]

    for (cluster, topic, partition, cause), each in groupby(sorted(rows, key=key), key):
        found = list(each)
        table.add_row(
            cluster,
            f"{topic}[{partition}]",
            cause,
            f"{len(found):,}",
            f"{sum(row['offsets'] for row in found):,}",
            f"{min(row['start_offset'] for row in found):,}",
            f"{max(row['end_offset'] for row in found):,}",
        )
    return table
