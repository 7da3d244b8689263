"""Format a comparison as Markdown tables, for the terminal and for `benchmarks/README.md`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.mm2 import pages_full
from benchmarks.mm2.markdown import Row, cell, head, line
from benchmarks.mm2.rivals import OURS, RIVALS
from benchmarks.report import ROOT

PAGE = ROOT / "benchmarks" / "README.md"

_WORDS = {rival.name: rival.words for rival in RIVALS}


def markdown(result: Row) -> str:
    """Return the tables of *result*, and a line on command, commit and machine."""
    tables = [
        _table(result.get("catch_up", []), _load, _CATCH_UP),
        _ratio_table(result.get("catch_up_ratios", []), _load),
        _table(result.get("latency", []), _stream, _LATENCY),
        _ratio_table(result.get("latency_ratios", []), _stream),
        _failover_table(result.get("failover", [])),
        *pages_full.tables(result),
    ]
    source = f"{made_on(result)}, in brackets the lowest and the highest."
    return "\n\n".join([*(table for table in tables if table), source])


def made_on(result: Row) -> str:
    """Return a line with the command, the commit and the machine of *result*."""
    made = result["machine"]
    return (
        f"Made by {_by(result['command'])} on {result['date']}, commit {result['commit']}, in "
        f"{result['seconds'] // 60} minutes: {made['cores']} cores ({made['cpu']}), "
        f"{made['memory_gib']} GiB, Kafka and MirrorMaker 2 {made['kafka']}, Java {made['java']}, "
        f"Python {made['python']}; median of {result['rounds']} rounds"
    )


def _by(command: str) -> str:
    """Return *command* for the page; for a run in parts, with the number of parts."""
    parts = command.split("; ")
    whole = re.split(" --(?:part|load) ", parts[0])[0]
    return f"`{command}`" if len(parts) == 1 else f"`{whole}` in {len(parts)} parts"


def marks(name: str) -> tuple[str, str]:
    """Return the markers before and after the tables named *name*."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def fill(text: str, name: str, page: Path = PAGE) -> None:
    """Write *text* between the markers of *name* in *page*. Raises ValueError without them."""
    begins, ends = marks(name)
    before, begin, rest = page.read_text(encoding="utf-8").partition(begins)
    _, end, after = rest.partition(ends)
    if not begin or not end:
        raise ValueError(f"{page.name} has no {begins} ... {ends}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def _load(row: Row) -> str:
    codec = "" if row["compression"] == "none" else f", {row['compression']}"
    what = row.get("data") or f"{row['records']:,} of {row['size_bytes']:,} B"
    return f"{what}, {row['partitions']} partitions{codec}"


def _stream(row: Row) -> str:
    return f"{row['rate']:,} records/s"


_CATCH_UP = {
    "records/s": "records_per_s",
    "first record, s": "first_s",
    "caught up, s": "last_s",
    "CPU s / million": "cpu_s_per_million",
    "brokers' CPU s / million": "broker_cpu_s_per_million",
    "memory, MiB": "peak_mib",
}
_LATENCY = {
    "p50, ms": "p50_ms",
    "p95, ms": "p95_ms",
    "p99, ms": "p99_ms",
    "max, ms": "max_ms",
    "CPU s / million": "cpu_s_per_million",
    "memory, MiB": "peak_mib",
}


def _table(rows: Sequence[Row], case: Callable[[Row], str], columns: Mapping[str, str]) -> str:
    if not rows:
        return ""
    lines = head(["", "", *columns])
    for row in rows:
        cells = [cell(row[name]) for name in columns.values()]
        lines.append(line([case(row), _WORDS[row["rival"]], *cells]))
    return "\n".join(lines)


def _ratio_table(rows: Sequence[Row], case: Callable[[Row], str]) -> str:
    if not rows:
        return ""
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    lines = head([f"{OURS.words} divided by", "", *measures])
    by_pair: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        by_pair.setdefault((case(row), row["to"]), {})[row["measure"]] = row
    for (load, rival), found in by_pair.items():
        lines.append(line([load, _WORDS[rival], *(cell(found[m]) for m in measures)]))
    return "\n".join(lines)


def _failover_table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    lines = head(["group's lag", "", "read again", "skipped", "partitions without an offset"])
    for row in rows:
        numbers = (row["reread"], row["skipped"], row["unknown_partitions"])
        cells = [f"{number:,}" for number in numbers]
        lines.append(line([f"{row['lag']:,}", _WORDS[row["rival"]], *cells]))
    return "\n".join(lines)
