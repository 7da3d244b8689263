"""Report of a run: JSON, a table for the terminal, and a block of the README pages."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.meter import Cost
from demo.kafka.jars import KAFKA_VERSION
from resources.java import java, java_version

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PRODUCT = (
    *("assets", "benchmarks", "deltamirror", "demo", "pipeline", "resources", "schemas"),
    "requirements.lock",
    *(":(exclude)benchmarks/results", ":(exclude)benchmarks/README.md"),
)
PAGES = (ROOT / "benchmarks" / "README.md",)
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"

WORDS = {
    "consume": "bare consume loop",
    "stage": "stage",
    "replay": "replay",
    "both": "both together",
}


def spread(values: Sequence[float], digits: int) -> dict[str, float]:
    """Return median, lowest and highest of *values*."""
    found = {"median": statistics.median(values), "low": min(values), "high": max(values)}
    return {name: round(value, digits) for name, value in found.items()}


def throughput(measure: str, size_bytes: int, rounds: Sequence[Cost]) -> dict[str, Any]:
    """Return the medians and spreads of the *rounds* of one measure."""
    return {
        "measure": measure,
        "size_bytes": size_bytes,
        "records": rounds[0].records,
        "records_per_s": spread([c.records_per_s for c in rounds], 0),
        "cpu_s_per_million": spread([c.cpu_s_per_million for c in rounds], 2),
        "broker_cpu_s_per_million": spread([c.broker_cpu_s_per_million for c in rounds], 2),
    }


def machine() -> dict[str, Any]:
    """Describe this machine and its software, without host names and paths."""
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "java": java_version(java()),
        "kafka": KAFKA_VERSION,
    }


def commit() -> str:
    """Return the last commit of the product's files, with a + if the files differ from it.

    Files that a benchmark has written do not count, because parts run one after the other.
    """
    try:
        found = _git("log", "-1", "--format=%h", "--abbrev=10", "--", *PRODUCT)
        is_changed = _git("status", "--porcelain", "--untracked=no", "--", *PRODUCT)
        return (found or "unknown") + ("+" if is_changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def save(result: Mapping[str, Any], folder: Path = RESULTS, *, name: str = "bench") -> Path:
    """Write *result* of the command *name* to the file of the day; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{result['date']}.json"
    file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return file


def newest(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """Return the last saved result of the command *name*, or None."""
    days = sorted(folder.glob(f"{name}-[0-9]*.json"))
    found: dict[str, Any] = json.loads(days[-1].read_text(encoding="utf-8")) if days else {}
    return found or None


def table(result: Mapping[str, Any]) -> Table:
    """Return the throughput of *result* for a terminal."""
    shown = Table(box=box.SIMPLE_HEAD, title="medians", title_justify="left")
    shown.add_column("", no_wrap=True)
    for heading in ("value", "records/s", "lowest - highest", "CPU s/M", "brokers'"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in result["throughput"]:
        speed = row["records_per_s"]
        shown.add_row(
            WORDS[row["measure"]],
            f"{row['size_bytes']:,} B",
            f"{speed['median']:,.0f}",
            f"{speed['low']:,.0f} - {speed['high']:,.0f}",
            f"{row['cpu_s_per_million']['median']:.2f}",
            f"{row['broker_cpu_s_per_million']['median']:.2f}",
        )
    return shown


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Return one sentence for the delay and one for the memory."""
    delay, memory = result["delay_s"], result["memory"]
    peaks = " and ".join(
        f"{row['peak_mib']:,} MiB with {row['records']:,} records waiting" for row in memory
    )
    return [
        f"Delay, loops idle before: {delay['new_records']:,} new records are read on the target "
        f"{delay['median']:.2f} s after they were written ({delay['low']:.2f} - "
        f"{delay['high']:.2f} s, {delay['ticks']} times).",
        f"Memory of driver, JVM and workers together, at most, values of "
        f"{memory[0]['size_bytes']:,} B: {peaks}.",
    ]


def markdown(result: Mapping[str, Any]) -> str:
    """Return *result* as Markdown."""
    sizes = sorted({row["size_bytes"] for row in result["throughput"]})
    heads = [head for size in sizes for head in (f"{size:,} B: records/s", "CPU s / million")]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for measure, words in WORDS.items():
        rows = {r["size_bytes"]: r for r in result["throughput"] if r["measure"] == measure}
        cells = [
            cell
            for size in sizes
            for cell in (
                f"{rows[size]['records_per_s']['median']:,.0f}",
                f"{rows[size]['cpu_s_per_million']['median']:.2f}",
            )
        ]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    made = result["machine"]
    lines += ["", *(f"- {sentence}" for sentence in sentences(result)), ""]
    lines.append(
        f"`make bench` on {result['date']}, commit {result['commit']}: {made['cores']} cores "
        f"({made['cpu']}), {made['memory_gib']} GiB, which both brokers share; "
        f"{result['partitions']} partitions, median of {result['rounds']} rounds."
    )
    return "\n".join(lines)


def fill_pages(result: Mapping[str, Any], pages: Sequence[Path] = PAGES) -> list[Path]:
    """Write *result* between the markers of *pages*; return the pages that were changed."""
    written = []
    for page in pages:
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if begin and end:
            page.write_text(f"{before}{begin}\n{markdown(result)}\n{end}{after}", encoding="utf-8")
            written.append(page)
    return written


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
