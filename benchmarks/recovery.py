"""`python -m benchmarks.recovery`: time from `kill -9` until a restarted run replays again."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, KafkaException, TopicPartition
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.ground import PARTITIONS, TARGET, Ground, ground
from benchmarks.meter import tree
from resources.config.load import read_config

RECORDS = 1_000_000
SIZE_BYTES = 100
KILL_AFTER = 0.1
"""Share of the records that are on the target when the run is killed."""

WAIT_S = 120.0


@dataclass(frozen=True)
class Recovery:
    """Seconds from the kill to a record that the restarted run committed.

    The killed run had written *replayed* of *records* to the target.
    """

    records: int
    replayed: int
    seconds: float


@click.command(context_settings={"show_default": True})
@click.option("--rounds", type=click.IntRange(1), default=3, help="The median is reported.")
@click.option("--records", type=click.IntRange(1000), default=RECORDS, help="Records per round.")
def main(rounds: int, records: int) -> None:
    """Kill a run in the middle, start it again, and time its first new record on the target."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="deltamirror-recovery-") as home:
        found = measure(Path(home), rounds, records)
    result = {
        "date": date.today().isoformat(),
        "commit": report.commit(),
        "machine": report.machine(),
        "command": shlex.join(["python", "-m", "benchmarks.recovery", *sys.argv[1:]]),
        "rounds": [asdict(recovery) for recovery in found],
        "recovery_s": report.spread([recovery.seconds for recovery in found], 2),
    }
    Console(stderr=True).print(_table(result))
    click.echo(json.dumps(result, indent=2))
    report.save(result, name="recovery")


def measure(home: Path, rounds: int, records: int) -> list[Recovery]:
    """Return the results of *rounds*. Each round has its own lake and remote topic."""
    with ground(home) as on:
        on.fill("orders", records, SIZE_BYTES)
        return [_round(on, f"round{number}", "orders", records) for number in range(rounds)]


def _round(on: Ground, alias: str, topic: str, records: int) -> Recovery:
    file = on.settings_file(alias, topic)
    config = read_config(file)
    target = Target(config.clusters[TARGET].consumer, config.flows[0].remote_topic(topic))
    with _run(file) as first:
        target.wait_for(int(records * KILL_AFTER), first)
        killed_at = time.perf_counter()
        _kill(first)
    with _run(file):
        # The killed run wrote below these ends, so a record after them is of the restarted run.
        ends = target.ends()
        target.read_one_after(ends)
        seconds = time.perf_counter() - killed_at
    replayed = sum(ends.values())
    if replayed >= records:
        raise RuntimeError("the run was killed after the last record: increase --records")
    return Recovery(records, replayed, round(seconds, 2))


@contextmanager
def _run(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start `deltamirror run` on *file*; kill its processes after the block."""
    command = [sys.executable, "-m", "deltamirror", "--config", str(file), "run"]
    with (
        file.with_name("run.log").open("ab") as out,
        subprocess.Popen(command, stdout=out, stderr=out) as process,
    ):
        try:
            yield process
        finally:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill *process*, its JVM and its workers at once, as a power cut does."""
    for pid in tree(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(WAIT_S)


class Target:
    """Reader of the remote *topic* of a round."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._settings, self._topic = settings, topic

    def wait_for(self, records: int, run: subprocess.Popen[bytes]) -> None:
        """Return when *run* has written about *records*. Raises TimeoutError, RuntimeError."""
        deadline = time.monotonic() + WAIT_S
        with self._reader("read_uncommitted") as reader:
            while sum(self._ends(reader).values()) < records:
                if run.poll() is not None:
                    raise RuntimeError(f"deltamirror run ended with {run.returncode}")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{records} records did not arrive in {WAIT_S:.0f} s")
                time.sleep(0.05)

    def ends(self) -> dict[int, int]:
        """Return the high watermark of each partition, which counts uncommitted records too."""
        with self._reader("read_uncommitted") as reader:
            return self._ends(reader)

    def read_one_after(self, ends: Mapping[int, int]) -> None:
        """Wait until there is a committed record at or after *ends*. Raises TimeoutError."""
        deadline = time.monotonic() + WAIT_S
        with self._reader("read_committed") as reader:
            reader.assign([TopicPartition(self._topic, p, at) for p, at in ends.items()])
            while time.monotonic() < deadline:
                message = reader.poll(0.2)
                if message is not None and message.error() is None:
                    return
        raise TimeoutError(f"no new record in {WAIT_S:.0f} s")

    def _ends(self, reader: Consumer) -> dict[int, int]:
        ends = dict.fromkeys(range(PARTITIONS), 0)
        with suppress(KafkaException):  # the topic does not exist yet
            for p in ends:
                ends[p] = reader.get_watermark_offsets(TopicPartition(self._topic, p), 5.0)[1]
        return ends

    @contextmanager
    def _reader(self, isolation: str) -> Iterator[Consumer]:
        reader = Consumer(
            {
                **self._settings,
                "group.id": "deltamirror-bench",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            yield reader
        finally:
            reader.close()


def _table(result: Mapping[str, Any]) -> Table:
    title = "kill -9 to the first new record on the target"
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in ("round", "records", "replayed before", "s"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for number, r in enumerate(result["rounds"], 1):
        shown.add_row(str(number), f"{r['records']:,}", f"{r['replayed']:,}", f"{r['seconds']:.2f}")
    shown.add_row("median", "", "", f"{result['recovery_s']['median']:.2f}")
    return shown


if __name__ == "__main__":
    main()
