"""Format the README's summary of a full comparison: numbers of each rival, and ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.mm2.markdown import Row, head, line, number
from benchmarks.mm2.pages import made_on
from benchmarks.mm2.rivals import EXACTLY_ONCE, OURS, STOCK, TUNED
from benchmarks.report import ROOT

PAGE = ROOT / "benchmarks" / "README.md"
NAME = "mm2-summary"
ORDER = (OURS, STOCK, TUNED, EXACTLY_ONCE)
LAG = 5_000

_Case = dict[str, object]
_100_B: _Case = {"size_bytes": 100, "partitions": 4, "compression": "none"}
_1_KB: _Case = {"size_bytes": 1_024, "partitions": 4, "compression": "none"}
_10_K: _Case = {"rate": 10_000}


@dataclass(frozen=True)
class _Measure:
    """A table line: text, *column* of the rows of *part* and *case*, and the measure of a ratio."""

    words: str
    part: str
    case: _Case
    column: str
    ratio: str


_MEASURES = (
    _Measure("records/s, 100 B", "catch_up", _100_B, "records_per_s", "records_per_s"),
    _Measure("records/s, 1 KB", "catch_up", _1_KB, "records_per_s", "records_per_s"),
    _Measure("CPU s / million, 100 B", "catch_up", _100_B, "cpu_s_per_million", "cpu_s"),
    _Measure("CPU s / million, 1 KB", "catch_up", _1_KB, "cpu_s_per_million", "cpu_s"),
    _Measure("memory, MiB, 100 B", "catch_up", _100_B, "peak_mib", "peak_bytes"),
    _Measure("memory, MiB, 1 KB", "catch_up", _1_KB, "peak_mib", "peak_bytes"),
    _Measure("delay at 10,000 records/s, p50, ms", "latency", _10_K, "p50_ms", "p50"),
    _Measure("delay at 10,000 records/s, p99, ms", "latency", _10_K, "p99_ms", "p99"),
)


def is_whole(result: Row) -> bool:
    """Return whether *result* has every part that the README shows."""
    return all(result.get(part) for part in ("catch_up", "latency", "failover"))


def markdown(result: Row) -> str:
    """Return the table of *result*, which is whole, and a line on command, commit and machine."""
    lines = head(["", *(rival.words for rival in ORDER)], words=1)
    for measure in _MEASURES:
        rows = _rows(result[measure.part], measure.case)
        ratios = _rows(result[f"{measure.part}_ratios"], measure.case)
        cells = []
        for rival in ORDER:
            (row,) = [row for row in rows if row["rival"] == rival.name]
            text = number(row[measure.column]["median"])
            for ratio in ratios:
                if (ratio["to"], ratio["measure"]) == (rival.name, measure.ratio):
                    text += f" ({number(ratio['median'])})"
            cells.append(text)
        lines.append(line([measure.words, *cells]))
    reread = {r["rival"]: f"{r['reread']:,}" for r in _rows(result["failover"], {"lag": LAG})}
    words = f"records that a group with a lag of {LAG:,} reads again on the target"
    lines.append(line([words, *(reread.get(rival.name, "") for rival in ORDER)]))
    source = f"{made_on(result)}; in brackets deltamirror's number divided by that one's."
    return "\n".join([*lines, "", source])


def _rows(rows: Sequence[Row], case: _Case) -> list[Row]:
    return [row for row in rows if all(row.get(name) == value for name, value in case.items())]
