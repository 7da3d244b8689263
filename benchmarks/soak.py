"""`python -m benchmarks.soak`: what grows while a mirror runs at a steady rate for a long time.

Once a minute it counts the lake's files and log entries, and reads memory and CPU time of driver,
JVM and workers. At the end `deltamirror verify` compares every record.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.ground import Ground, flush, ground, make_topic, producer_of, send
from benchmarks.meter import cpu_s, pss, tree
from benchmarks.mm2 import catch_up
from benchmarks.mm2.remote import Topic
from benchmarks.mm2.rivals import OURS, Flow
from demo.kafka.processes import restore_signals

TOPIC = "busy"
PARTITIONS = 24
IDLE_TOPICS = 100
RATE = 2_000
VALUE = b"v" * 100
BATCH_S = 0.05
STOP_S = 60.0
ANSWER_S = 30.0
READY_S = 180.0

MIB = 2**20
SERIES = {
    "files": "files in the lake",
    "log_entries": "log entries",
    "memory_mib": "memory, MiB",
    "cpu_s": "CPU seconds in the minute",
}


@dataclass(frozen=True)
class Sample:
    """State at the end of a minute; *cpu_s* and *records* are of that minute alone.

    *files* are all files of the lake, *log_entries* those in the tables' logs, *made* are files
    that were not there a minute before. Memory is PSS in MiB.
    """

    minute: int
    files: int
    made: int
    log_entries: int
    memory_mib: int
    driver_mib: int
    jvm_mib: int
    workers_mib: int
    cpu_s: float
    records: int


@click.command(context_settings={"show_default": True})
@click.option("--minutes", type=click.FloatRange(0.1), default=60.0, help="Length of the run.")
@click.option("--every", "every_s", default=60.0, help="Seconds between two samples.")
@click.option("--rate", default=RATE, help="Records per second.")
def main(minutes: float, every_s: float, rate: int) -> None:
    """Mirror at a steady rate; sample files, memory and CPU time; verify all records."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="deltamirror-soak-") as home, ground(Path(home)) as on:
        samples = measure(on, minutes * 60, every_s, rate)
    result = {
        "date": date.today().isoformat(),
        "commit": report.commit(),
        "machine": report.machine(),
        "command": shlex.join(["python", "-m", "benchmarks.soak", *sys.argv[1:]]),
        "rate": rate,
        "partitions": PARTITIONS,
        "idle_topics": IDLE_TOPICS,
        "every_s": every_s,
        "samples": [asdict(sample) for sample in samples],
        "verified": True,
    }
    Console(width=None if sys.stdout.isatty() else 120).print(_table(samples))
    file = report.save(result, name="soak")
    file.with_suffix(".svg").write_text(picture(result), encoding="utf-8")
    click.echo(f"kept in {file.relative_to(report.ROOT)}")


def measure(on: Ground, seconds: float, every_s: float, rate: int) -> list[Sample]:
    """Mirror *rate* records/s for *seconds*; return the samples.

    Raises RuntimeError if the mirror ends or `verify` finds a difference, TimeoutError.
    """
    _make_topics(on)
    file = on.settings_file("soak", f"{TOPIC}, idle-.*")
    with file.open("a") as more:
        more.write("tasks.max = 2\ndeltamirror.lake = lake\ndeltamirror.metrics.listen =\n")
    flow, producer = Flow(OURS, "soak", file), producer_of(on.source)
    samples: list[Sample] = []
    written = 0
    with _running(flow) as process:
        _wait_until_replayed(on, flow, process, _write(producer, 0, PARTITIONS))
        state, begun = _State(file.parent / "lake", process.pid), time.monotonic()
        while time.monotonic() < begun + seconds:
            due = begun + (len(samples) + 1) * every_s
            before = written
            while (now := time.monotonic()) < due:
                written = _write(producer, written, int((now - begun) * rate))
                producer.poll(0)
                time.sleep(BATCH_S)
            if process.poll() is not None:
                raise RuntimeError(f"the mirror ended: {flow.log.read_text()[-500:]}")
            samples.append(state.sample(len(samples) + 1, written - before))
        flush(producer)
    subprocess.run([*_command(flow), "run", "--until-caught-up"], check=True, timeout=READY_S)
    catch_up.verify(flow)
    return samples


class _State:
    """The lake in *folder* and the processes of *pid*, compared with the last look."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder, self._pid = folder, pid
        self._files = self._list()
        self._cpu_s = self._used_s()

    def sample(self, minute: int, records: int) -> Sample:
        """Return the state now."""
        files, used_s = self._list(), self._used_s()
        driver, jvm, workers = self._memory()
        found = Sample(
            minute=minute,
            files=len(files),
            made=len(files - self._files),
            log_entries=sum("/_delta_log/" in path for path in files),
            memory_mib=driver + jvm + workers,
            driver_mib=driver,
            jvm_mib=jvm,
            workers_mib=workers,
            cpu_s=round(used_s - self._cpu_s, 1),
            records=records,
        )
        self._files, self._cpu_s = files, used_s
        return found

    def _list(self) -> set[str]:
        return {f"{folder}/{name}" for folder, _, names in os.walk(self._folder) for name in names}

    def _used_s(self) -> float:
        return sum(map(cpu_s, tree(self._pid)))

    def _memory(self) -> tuple[int, int, int]:
        """Return the MiB of driver, JVM and Python workers."""
        sums = {"driver": 0, "jvm": 0, "workers": 0}
        for pid in tree(self._pid):
            kind = "driver" if pid == self._pid else _kind(pid)
            sums[kind] += pss(pid)
        return sums["driver"] // MIB, sums["jvm"] // MIB, sums["workers"] // MIB


def _kind(pid: int) -> str:
    try:
        return "jvm" if "java" in Path(f"/proc/{pid}/exe").readlink().name else "workers"
    except OSError:  # it has just ended
        return "workers"


def _make_topics(on: Ground) -> None:
    make_topic(on.source, TOPIC, PARTITIONS)
    admin = AdminClient({"bootstrap.servers": on.source.bootstrap_servers})
    made = admin.create_topics([NewTopic(f"idle-{i}", 1, 1) for i in range(IDLE_TOPICS)])
    for answer in made.values():
        answer.result(ANSWER_S)


def _write(producer: Producer, start: int, end: int) -> int:
    """Write the records from *start* to *end*, to the partitions in turn; return *end*."""
    for number in range(start, end):
        send(producer, TOPIC, number % PARTITIONS, b"%010d" % number, VALUE)
    return max(start, end)


def _command(flow: Flow) -> list[str]:
    return [sys.executable, "-m", "deltamirror", "--config", str(flow.file)]


@contextmanager
def _running(flow: Flow) -> Iterator[subprocess.Popen[bytes]]:
    """Run the mirror during the block, and end it with SIGTERM."""
    with flow.log.open("wb") as log:
        process = subprocess.Popen(
            [*_command(flow), "run"],
            stdout=log,
            stderr=log,
            cwd=report.ROOT,
            preexec_fn=restore_signals,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_replayed(
    on: Ground, flow: Flow, process: subprocess.Popen[bytes], written: int
) -> None:
    """Wait until the first records are on the target: then the mirror has started."""
    remote = Topic(on.target, flow.remote(TOPIC), PARTITIONS)
    give_up_at = time.monotonic() + READY_S
    while sum(remote.ends().values()) < written:
        catch_up.go_on(flow, process, give_up_at)


def _table(samples: Sequence[Sample]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD)
    for name in asdict(samples[0]):
        shown.add_column(name.replace("_", " "), justify="right")
    for sample in samples:
        shown.add_row(*(f"{value:,}" for value in asdict(sample).values()))
    return shown


WIDTH, HEIGHT, LEFT, GAP = 720, 130, 60, 46


def picture(result: dict[str, Any]) -> str:
    """Return the series of *result* as an SVG, one chart below the other, each from zero."""
    samples = result["samples"]
    minutes = result["every_s"] / 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {LEFT + WIDTH + 20} {len(SERIES) * (HEIGHT + GAP) + 10}">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        '<g font-family="sans-serif" font-size="12" fill="#1f2933">',
    ]
    for row, (name, title) in enumerate(SERIES.items()):
        top = row * (HEIGHT + GAP) + 24
        values = [sample[name] for sample in samples]
        highest = max([*values, 1])
        step = WIDTH / max(1, len(values) - 1)
        points = " ".join(
            f"{LEFT + i * step:.1f},{top + HEIGHT * (1 - value / highest):.1f}"
            for i, value in enumerate(values)
        )
        last = f"{len(values) * minutes:g} min"
        parts += [
            f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escape(title)}</text>',
            f'<path d="M{LEFT} {top}v{HEIGHT}h{WIDTH}" fill="none" stroke="#9aa5b1"/>',
            f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{highest:,.0f}</text>',
            f'<text x="{LEFT - 6}" y="{top + HEIGHT}" text-anchor="end">0</text>',
            f'<text x="{LEFT + WIDTH}" y="{top + HEIGHT + 14}" text-anchor="end">{last}</text>',
            f'<polyline points="{points}" fill="none" stroke="#2467b5" stroke-width="2"/>',
        ]
    return "\n".join([*parts, "</g></svg>", ""])


if __name__ == "__main__":
    main()
