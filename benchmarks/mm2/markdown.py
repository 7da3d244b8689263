"""Tables in Markdown: lines, and numbers as a reader wants them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def head(names: Sequence[str], words: int = 2) -> list[str]:
    """Return the first two lines of a table, whose first *words* columns are not numbers."""
    return [line(names), "|" + "---|" * words + "---:|" * (len(names) - words)]


def line(cells: Iterable[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def cell(value: Row | float | None) -> str:
    """Return a number or a spread as it stands in a table; None: there is none."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        lowest, highest = number(value["low"]), number(value["high"])
        return f"{number(value['median'])} ({lowest} - {highest})"
    return number(value)


def number(value: float) -> str:
    """Return *value* with thousands apart, and no digits behind the point that say nothing."""
    return f"{value:,.0f}" if value == round(value) and value >= 10 else f"{value:,g}"
