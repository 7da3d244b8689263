"""`deltamirror config check`: report how each key of mm2.properties is treated."""

from __future__ import annotations

import click
from rich.table import Table

from deltamirror.cli.app import Console, common_options
from resources.config.load import check_config, read_config
from schemas.config.keys import KeyStatus

# Only keys that need attention are coloured.
STYLES = {KeyStatus.NO_EFFECT: "yellow", KeyStatus.REFUSED: "red", KeyStatus.UNKNOWN: "red"}


@click.group("config", epilog="Example: deltamirror config check")
def config_group() -> None:
    """Check the configuration file."""


@config_group.command("check", epilog="Example: deltamirror config check --config mm2.properties")
@common_options
@click.pass_context
def check_command(context: click.Context) -> None:
    """Show the status of every key in the file.

    A key is honoured, translated, without effect, refused or unknown. The exit code is 2 if a key
    is refused or unknown. Secrets are not shown.
    """
    console = context.ensure_object(Console)
    checks = check_config(console.path)
    is_bad = any(each.status in (KeyStatus.REFUSED, KeyStatus.UNKNOWN) for each in checks)
    if not is_bad:
        # Each key may be valid, but not their combination. Then this raises ConfigError.
        read_config(console.path)
    rows = [
        {"key": each.key, "value": each.value, "status": each.status.value, "note": each.note}
        for each in checks
    ]
    table = Table("key", "value", "status", "note")
    for each, row in zip(checks, rows, strict=True):
        table.add_row(*row.values(), style=STYLES.get(each.status))
    console.show({"keys": rows}, table)
    context.exit(2 if is_bad else 0)
