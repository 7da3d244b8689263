"""Rivals that are measured: MirrorMaker 2 with three sets of settings, and deltamirror."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ground import Ground
from benchmarks.meter import tree
from demo.kafka.broker import LOGGING
from demo.kafka.jars import kafka_home
from demo.kafka.processes import restore_signals, started_at
from resources.java import java

SETTINGS = Path(__file__).with_name("settings")
STOP_S = 60.0

# JVM options of Kafka's start scripts (bin/kafka-run-class.sh, connect-mirror-maker.sh).
_JVM = (
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"


@dataclass(frozen=True)
class Rival:
    """A program to measure: *name* is its file in `settings/`, *words* its name in tables."""

    name: str
    words: str
    is_ours: bool = False


OURS = Rival("deltamirror", "deltamirror", is_ours=True)
STOCK = Rival("mm2-stock", "MirrorMaker 2, stock")
TUNED = Rival("mm2-tuned", "MirrorMaker 2, tuned, at least once")
EXACTLY_ONCE = Rival("mm2-exactly-once", "MirrorMaker 2, tuned, exactly once")
RIVALS = (STOCK, TUNED, EXACTLY_ONCE, OURS)


@dataclass(frozen=True)
class Flow:
    """A flow of one rival, from the source broker under the name *alias*."""

    rival: Rival
    alias: str
    file: Path

    @property
    def log(self) -> Path:
        """Return the path of the rival's log."""
        return self.file.with_name("log")

    def remote(self, topic: str) -> str:
        """Return the name of *topic* on the target (DefaultReplicationPolicy)."""
        return f"{self.alias}.{topic}"

    def forget(self) -> None:
        """Remove the flow's folder and its lake to free disk space."""
        shutil.rmtree(self.file.parent)


def flow(
    on: Ground, rival: Rival, alias: str, topics: str, groups: str = "", more: str = ""
) -> Flow:
    """Write the file of a flow of *topics* and *groups* (regular expressions); return the flow.

    *more* lines override others. Each call gives the source broker another *alias*. So remote
    topics, progress and lake are
    new each time, while the source is filled only once.
    """
    folder = on.home / alias
    folder.mkdir()
    written = [SETTINGS / "common.properties", SETTINGS / f"{rival.name}.properties"]
    text = "".join(part.read_text() for part in written) + more
    values = {
        "source": alias,
        "source_servers": on.source.bootstrap_servers,
        "target_servers": on.target.bootstrap_servers,
        "topics": topics,
        "groups": groups,
    }
    file = folder / "mm2.properties"
    file.write_text(text.format_map(values))
    return Flow(rival, alias, file)


@contextlib.contextmanager
def running(flow: Flow) -> Iterator[subprocess.Popen[bytes]]:
    """Run *flow*'s rival in a process for the block; end it with SIGTERM, as its users do."""
    command = _ours(flow.file) if flow.rival.is_ours else _mm2(flow.file)
    with (
        flow.log.open("ab") as log,
        subprocess.Popen(
            command, stdout=log, stderr=log, cwd=flow.file.parent, preexec_fn=restore_signals
        ) as process,
    ):
        try:
            yield process
        finally:
            _end(process)


def check(flow: Flow, process: subprocess.Popen[bytes]) -> None:
    """Raise RuntimeError with the end of its log if the rival has ended."""
    if process.poll() is not None:
        words = flow.log.read_text(errors="replace")[-1_000:]
        raise RuntimeError(f"{flow.rival.words} ended with {process.returncode}: {words}")


def _ours(file: Path) -> list[str]:
    return [sys.executable, "-m", "deltamirror", "--config", str(file), "run"]


def _mm2(file: Path) -> list[str]:
    logging = file.with_name("log4j2.properties")
    logging.write_text(LOGGING)
    jars = os.pathsep.join(sorted(str(jar) for jar in kafka_home().glob("*.jar")))
    option = f"-Dlog4j2.configurationFile={logging}"
    return [str(java()), *_JVM, option, "-cp", jars, _MAIN, str(file)]


def _end(process: subprocess.Popen[bytes]) -> None:
    # A process id may be reused; id and start time together identify a process.
    family = {pid: started_at(pid) for pid in tree(process.pid)}
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    for pid, started in family.items():
        if started is not None and started_at(pid) == started:
            os.kill(pid, signal.SIGKILL)
