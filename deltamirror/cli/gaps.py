"""`deltamirror gaps`: list source offsets without a staged record, and their causes."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

import click
from rich.table import Table

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import chosen_sources, number_columns


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
    from resources.delta.views import query_view
    from schemas.views import GAPS

    with console.open_context() as context:
        rows = [
            {"cluster": source, **row}
            for source in chosen_sources(context.config, alias)
            for row in query_view(GAPS, context.lake, source, topic).to_pylist()
        ]
    console.show({"gaps": rows}, lambda: _gaps_table(rows))


def _gaps_table(rows: list[dict[str, Any]]) -> Table:
    columns = number_columns("intervals", "offsets", "from", "to")
    table = Table("cluster", "partition", "cause", *columns)
    key = itemgetter("cluster", "topic", "partition", "cause")
    for (cluster, topic, partition, cause), each in groupby(sorted(rows, key=key), key):
        found = list(each)
        offsets = sum(row["offsets"] for row in found)
        start = min(row["start_offset"] for row in found)
        end = max(row["end_offset"] for row in found)
        numbers = (f"{number:,}" for number in (len(found), offsets, start, end))
        table.add_row(cluster, f"{topic}[{partition}]", cause, *numbers)
    return table
