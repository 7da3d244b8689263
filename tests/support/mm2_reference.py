"""Start Apache Kafka's MirrorMaker 2 from the brokers' jars, as the reference for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from demo.kafka.broker import LOGGING
from demo.kafka.brokers import Broker
from demo.kafka.jars import kafka_home
from demo.kafka.processes import restore_signals
from resources.java import java

MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
START_S = 120.0
STOP_S = 60.0

# A single broker allows one replica only.
QUICKLY = {
    "replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "sync.topic.acls.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
}


class MirrorMaker:
    """A dedicated MirrorMaker 2 for *clusters* by alias, with *settings* in its file.

    `log` is its log file, and `path` its configuration file, which `deltamirror` can read, too.
    """

    def __init__(
        self, home: Path, clusters: Mapping[str, Broker], settings: Mapping[str, str]
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.path, self.log = home / "mm2.properties", home / "mm2.log"
        servers = {f"{a}.bootstrap.servers": b.bootstrap_servers for a, b in clusters.items()}
        flushed = {f"{alias}.offset.flush.interval.ms": "1000" for alias in clusters}
        lines = {"clusters": ", ".join(clusters), **servers, **QUICKLY, **flushed, **settings}
        self.path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        self._logging = home / "log4j2.properties"
        self._logging.write_text(LOGGING)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it is ready some seconds later."""
        jars = os.pathsep.join(sorted(str(jar) for jar in kafka_home().glob("*.jar")))
        command = [str(java()), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dlog4j2.configurationFile={self._logging}", "-cp", jars, MAIN]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self.path)], stdout=log, stderr=log, preexec_fn=restore_signals
            )

    def until(self, happened: Callable[[], bool], what: str, within_s: float = START_S) -> None:
        """Wait until *happened* returns True. Raises TimeoutError with *what* and the log's end.

        Raises it at once if MirrorMaker 2 has ended.
        """
        give_up_at = time.monotonic() + within_s
        while not happened():
            has_ended = self._process is None or self._process.poll() is not None
            if has_ended or time.monotonic() > give_up_at:
                tail = self.log.read_text(errors="replace")[-2_000:]
                why = "MirrorMaker 2 has ended" if has_ended else f"not within {within_s:.0f} s"
                raise TimeoutError(f"{why}: {what}\n{tail}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it with SIGTERM: it commits its offsets first."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it with SIGKILL: a restart copies records again whose offsets are not committed."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, how)
            self._process.wait(STOP_S)


@contextmanager
def mirror_maker(
    home: Path, clusters: Mapping[str, Broker], settings: Mapping[str, str]
) -> Iterator[MirrorMaker]:
    """Run a MirrorMaker 2 during the block."""
    made = MirrorMaker(home, clusters, settings)
    made.start()
    try:
        yield made
    finally:
        made.kill()
