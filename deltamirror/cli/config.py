"""`deltamirror config`: what becomes of every key of mm2.properties."""

from __future__ import annotations

import click
from rich.table import Table

from deltamirror.cli.app import Console, common_options
from resources.config.load import check_config, read_config
from schemas.config.keys import KeyCheck, KeyStatus

# Only what needs attention is coloured: among coloured lines nobody sees the red one.
STYLES = {KeyStatus.NO_EFFECT: "yellow", KeyStatus.REFUSED: "red", KeyStatus.UNKNOWN: "red"}
BAD = (KeyStatus.REFUSED, KeyStatus.UNKNOWN)


@click.group("config")
def config_group() -> None:
    """Look at the configuration file."""


@config_group.command("check")
@common_options
@click.pass_context
def check_command(context: click.Context) -> None:
    """Say of every key whether it is honoured, translated, without effect, refused or unknown.

    Ends with exit code 2 where a key is refused or unknown. Secrets are not shown.
    """
    console = context.ensure_object(Console)
    checks = check_config(console.path)
    is_bad = any(each.status in BAD for each in checks)
    if not is_bad:
        # Keys that are good one by one may still not go together: this raises.
        read_config(console.path)
    console.show({"keys": [_key_json(each) for each in checks]}, lambda: _keys_table(checks))
    context.exit(2 if is_bad else 0)


def _key_json(each: KeyCheck) -> dict[str, str]:
    return {
        "key": each.key,
        "value": each.value,
        "status": each.status.value,
        "note": each.note,
    }


def _keys_table(checks: list[KeyCheck]) -> Table:
    table = Table("key", "value", "status", "note")
    for each in checks:
        style = STYLES.get(each.status)
        table.add_row(each.key, each.value, each.status.value, each.note, style=style)
    return table
