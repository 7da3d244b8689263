"""Tables of the full comparison only: growth, and a record's CPU time by file."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from benchmarks.mm2.markdown import Row, cell, head, line
from benchmarks.mm2.rivals import OURS, RIVALS
from benchmarks.sampler import PRODUCT

LEAST = 0.01
"""Files and threads with a smaller share of a step's CPU time share one line."""

_WORDS = {rival.name: rival.words for rival in RIVALS}
_TICKS = {
    "learning the lake, s": "open_s",
    "stage tick, s": "stage_tick_s",
    "replay tick, s": "replay_tick_s",
    "idle stage tick, s": "idle_stage_tick_s",
    "idle replay tick, s": "idle_replay_tick_s",
}
_TOPICS = {
    "all topics there, s": "all_s",
    "CPU s / minute": "cpu_s_per_minute",
    "brokers' CPU s / minute": "broker_cpu_s_per_minute",
    "memory, MiB": "peak_mib",
    **_TICKS,
}
_STAGED = {
    "start to first record, s": "start_s",
    **_TICKS,
    "memory, at rest, MiB": "rests_mib",
    "memory, catching up, MiB": "peak_mib",
    "CPU s / million": "cpu_s_per_million",
    "lake, MiB": "lake_mib",
    "its logs, MiB": "log_mib",
    "commits": "commits",
}
_CORES = {
    "records/s": "records_per_s",
    "caught up, s": "last_s",
    "CPU s / million": "cpu_s_per_million",
    "memory, MiB": "peak_mib",
}
_THREADS = "all threads"


def tables(result: Row) -> list[str]:
    """Return the tables of those of these parts that *result* has."""
    found = [
        _table(
            result.get("growth_topics", []),
            _TOPICS,
            lambda row: (f"{row['topics']:,} topics", _WORDS[row["rival"]]),
        ),
        _table(
            result.get("growth_staged", []),
            _STAGED,
            lambda row: (f"{row['records']:,} records staged", OURS.words),
        ),
        _table(
            result.get("growth_cores", []),
            _CORES,
            lambda row: (f"{row['size_bytes']:,} B, tasks.max = {row['tasks']}", OURS.words),
        ),
        _cost_table(result.get("cost", [])),
    ]
    return [table for table in found if table]


def _table(
    rows: Sequence[Row], columns: Mapping[str, str], names: Callable[[Row], tuple[str, str]]
) -> str:
    if not rows:
        return ""
    lines = head(["", "", *columns])
    for row in rows:
        cells = [cell(row.get(column)) for column in columns.values()]
        lines.append(line([*names(row), *cells]))
    return "\n".join(lines)


def _cost_table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    sizes = sorted({row["size_bytes"] for row in rows})
    lines = head(["CPU s / million", "", "", *(f"{size:,} B" for size in sizes)], words=3)
    for rival, step in dict.fromkeys((row["rival"], row["step"]) for row in rows):
        mine = [row for row in rows if (row["rival"], row["step"]) == (rival, step)]
        for where, by_size in _places(mine).items():
            what = _what(where) if where else _THREADS
            shown = f"`{where}`" if where.endswith(".py") else where
            cells = [cell(round(by_size.get(size, 0.0), 3)) for size in sizes]
            lines.append(line([f"{_WORDS[rival]}, {step}", shown, what, *cells]))
    return "\n".join(lines)


def _places(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Return CPU seconds by file or thread group, then by size; total first, then descending."""
    whole = {row["size_bytes"]: row["cpu_s_per_million"] for row in rows if not row["where"]}
    found: dict[str, dict[int, float]] = {}
    small = dict.fromkeys(whole, 0.0)
    for row in sorted(rows, key=lambda row: -row["cpu_s_per_million"]):
        size, used_s = row["size_bytes"], row["cpu_s_per_million"]
        most_s = max(r["cpu_s_per_million"] for r in rows if r["where"] == row["where"])
        if row["where"] and most_s < LEAST * max(whole.values()):
            small[size] += used_s
        else:
            found.setdefault(row["where"], {})[size] = used_s
    whole_first = {"": found.pop("")}
    return {
        **whole_first,
        **found,
        **({"less than 1 % each": small} if any(small.values()) else {}),
    }


def _what(where: str) -> str:
    """Return the first docstring line of the file *where*, or "" if it is no file."""
    file = PRODUCT / where
    if not where.endswith(".py") or not file.exists():
        return ""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]
