"""`python -m benchmarks.commits`: CPU time of a commit and of a refresh, by earlier commits."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from statistics import fmean

import click
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import report
from resources.delta.file_names import file_name
from resources.delta.records_table import RecordsTable
from resources.delta.transaction_log import AddedFile, LiveFile

FILES = 2
TIMES = 30
SIZES = (300, 1_000, 3_000, 10_000)
_STATS = json.dumps({"numRecords": 100, "minValues": {"offset": 0}, "maxValues": {"offset": 99}})


@dataclass(frozen=True)
class Cost:
    """CPU milliseconds of one commit, and of one refresh by a reader, after *commits* others.

    Each commit adds `FILES` files and sets a txn version; mean of `TIMES`. *by* is the library.
    """

    commits: int
    by: str
    commit_ms: float
    look_ms: float


@click.command(context_settings={"show_default": True})
@click.option("--size", "sizes", type=click.IntRange(1), multiple=True, default=SIZES)
def main(sizes: Sequence[int]) -> None:
    """Commit to one growing table with deltamirror and deltalake in turn."""
    with tempfile.TemporaryDirectory(prefix="deltamirror-commits-") as home:
        costs = measure(Path(home), sorted(sizes))
    result = {
        "date": date.today().isoformat(),
        "commit": report.commit(),
        "machine": report.machine(),
        "command": shlex.join(["python", "-m", "benchmarks.commits", *sys.argv[1:]]),
        "costs": [asdict(cost) for cost in costs],
    }
    Console(stderr=True).print(_table(costs))
    click.echo(json.dumps(result, indent=2))
    report.save(result, name="commits")


def measure(home: Path, sizes: Sequence[int]) -> list[Cost]:
    """Return the costs at each of *sizes*, in rising order, each just after a checkpoint."""
    path = home / "records"
    ours = RecordsTable(path)
    costs = []
    for size in sizes:
        while ours.refresh() < size:
            _commit(ours)
        ours.checkpoint(1)
        reader = RecordsTable(path)
        reader.refresh()
        costs.append(_cost(size, "deltamirror", partial(_commit, ours), reader.refresh))
        theirs, look = DeltaTable(str(path)), DeltaTable(str(path)).update_incremental
        costs.append(_cost(size, "deltalake", partial(_commit_by, theirs), look))
    return costs


def _cost(size: int, by: str, commit: Callable[[], object], look: Callable[[], object]) -> Cost:
    spent = [(_cpu_ms(commit), _cpu_ms(look)) for _ in range(TIMES)]
    commit_ms, look_ms = (round(fmean(each), 2) for each in zip(*spent, strict=True))
    return Cost(size, by, commit_ms, look_ms)


def _commit(records: RecordsTable) -> None:
    version = records.version + 1
    files = [LiveFile(path, 1_000) for path in _paths(version)]
    records.commit(
        [AddedFile(file, 0, _STATS) for file in files], txn_versions={"topic/id/0": version}
    )


def _commit_by(delta: DeltaTable) -> None:
    version = delta.version() + 1
    adds = [AddAction(path, 1_000, {}, 0, True, _STATS) for path in _paths(version)]
    txn_versions = [Transaction("topic/id/0", version)]
    delta.create_write_transaction(
        list(adds),
        mode="append",
        schema=delta.schema(),
        commit_properties=CommitProperties(app_transactions=txn_versions),
    )
    delta.update_incremental()  # the object does not know its own commit


def _paths(version: int) -> list[str]:
    return [file_name(version, 1 << n, 0, f"{n:032x}", f"{n:016x}") for n in range(FILES)]


def _cpu_ms(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1e3


def _table(costs: Sequence[Cost]) -> Table:
    title = "CPU milliseconds after so many commits"
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in ("commits", "by", "a commit", "a refresh"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for each in costs:
        row = (f"{each.commits:,}", each.by, f"{each.commit_ms:.2f}", f"{each.look_ms:.2f}")
        shown.add_row(*row)
    return shown


if __name__ == "__main__":
    main()
