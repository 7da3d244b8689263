"""Options and value formats that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deltamirror import times
from schemas.errors.base import ConfigError

if TYPE_CHECKING:
    from schemas.config.config import Config


def time_ms(text: str) -> int:
    """Return the time *text* in ms since 1970. Raises click.BadParameter."""
    try:
        return times.parse_time_ms(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def check_source(config: Config, alias: str) -> None:
    """Raise ConfigError if *alias* is not the source of an enabled flow."""
    if alias not in config.sources():
        known = ", ".join(config.sources())
        raise ConfigError(f"{alias} is not the source of an enabled flow (sources: {known})")


def offset_text(offset: int | None) -> str:
    """Return a translated offset as text for a table."""
    return "nothing has arrived" if offset is None else str(offset)


flow_option = click.option("--flow", "flow_name", required=True, metavar="A->B", help="The flow.")

as_of_option = click.option(
    "--as-of",
    type=time_ms,
    metavar="TIME",
    help="Use the commits seen at or before this time (ISO 8601 or ms since 1970).",
)
