"""Markdown tables: lines and formatted numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def head(names: Sequence[str], words: int = 2) -> list[str]:
    """Return the two head lines of a table. Its first *words* columns are text."""
    return [line(names), "|" + "---|" * words + "---:|" * (len(names) - words)]


def line(cells: Iterable[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def cell(value: Row | float | None) -> str:
    """Return a number or a spread as a table cell; None gives an empty cell."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        lowest, highest = number(value["low"]), number(value["high"])
        return f"{number(value['median'])} ({lowest} - {highest})"
    return number(value)


def number(value: float) -> str:
    """Return *value* with thousands separators, without digits that are not significant."""
    return f"{value:,.0f}" if value == round(value) and value >= 10 else f"{value:,g}"
