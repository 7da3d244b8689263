"""Options and value formats that several commands share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Group
from rich.table import Column, Table

from deltamirror import times
from schemas.errors.base import ConfigError, DeltamirrorError

if TYPE_CHECKING:
    from schemas.config.config import Config, FlowConfig


def time_ms(text: str) -> int:
    """Return the time *text* in ms since 1970. Raises click.BadParameter."""
    try:
        return times.parse_time_ms(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def chosen_sources(config: Config, alias: str | None) -> tuple[str, ...]:
    """Return source cluster *alias*, or all sources if it is None.

    Raises ConfigError if *alias* is not the source of an enabled flow.
    """
    sources = config.sources()
    if alias is None:
        return sources
    if alias not in sources:
        known = ", ".join(sources)
        raise ConfigError(f"{alias} is not the source of an enabled flow (sources: {known})")
    return (alias,)


def chosen_flows(config: Config, names: Sequence[str]) -> Sequence[FlowConfig]:
    """Return the flows *names*, or all flows if there are no names. Raises UnknownFlowError."""
    return [config.flow(name) for name in names] or config.flows


def number_columns(*names: str) -> list[Column]:
    """Return right-aligned columns of a table."""
    return [Column(name, justify="right") for name in names]


def error_rows(errors: Iterable[DeltamirrorError]) -> list[dict[str, str]]:
    """Return *errors* as JSON."""
    return [{"type": e.kind, "message": str(e), "hint": e.hint} for e in errors]


def with_errors(table: Table, errors: Iterable[DeltamirrorError]) -> Group:
    """Return *table* with a line below it for each of *errors*."""
    return Group(table, *(f"{error}. {error.hint}" for error in errors))


def offset_text(offset: int | None) -> str:
    """Return a translated offset as text for a table."""
    return "nothing has arrived" if offset is None else str(offset)


flows_option = click.option(
    "--flow", "flow_names", multiple=True, metavar="A->B", help="Only this flow; repeatable."
)

flow_option = click.option("--flow", "flow_name", required=True, metavar="A->B", help="The flow.")

as_of_option = click.option(
    "--as-of",
    type=time_ms,
    metavar="TIME",
    help="Use the commits seen at or before this time (ISO 8601 or ms since 1970).",
)
