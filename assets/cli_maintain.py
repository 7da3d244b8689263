"""`deltamirror maintain`: retention, compaction and vacuum, now."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from assets.console import Console, options
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from assets.maintain import Maintained


@click.command("maintain")
@click.option("--cluster", "alias", metavar="A", help="Only what is staged of this source cluster.")
@options
@click.pass_obj
def maintain_command(console: Console, alias: str | None) -> None:
    """Remove what has served its time, join small files, delete what no version needs.

    A running loop does the same by itself; while one holds the cluster, this ends with an error.
    """
    from assets.maintain import maintain
    from assets.site import Site

    config = console.config()
    if alias is not None and alias not in config.sources():
        known = ", ".join(config.sources())
        raise ConfigError(f"{alias} is not the source of an enabled flow (sources: {known})")
    with closing(Site(config)) as site:
        done = maintain(site, alias)
    console.show({"clusters": [asdict(each) for each in done]}, lambda: _table(done))


def _table(done: Sequence[Maintained]) -> Table:
    from rich.table import Table

    table = Table(
        "cluster", "files past retention", "bytes", "files joined", "into", "other tables",
        "deleted from disk",
    )  # fmt: skip
    for each in done:
        numbers = (
            each.removed, each.removed_bytes, each.joined, each.joined_into, each.merged,
            each.deleted,
        )  # fmt: skip
        table.add_row(each.alias, *map(str, numbers))
    return table
