"""A small mirrored world: real clusters, a file, a lake; what a story does to it and asks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from deltamirror.context import MirrorContext
from deltamirror.run.supervisor import mirror
from deltamirror.staging.stager import SourceStager
from demo.kafka.brokers import Broker
from demo.kafka.processes import restore_signals
from resources.config.load import read_config
from resources.spark.session import SparkWorkers
from schemas.config.config import Config
from tests.support.brokers import ROOT, cli_environment, consume_all, run_cli
from tests.support.fake_context import InlineWorkers

FLOW = "us-east->eu-west"
WAIT_S = 90.0

# Heartbeats would meet those of other tests on the shared brokers, and count as records; the
# offset syncs of all tests would be in one topic. Whoever wants them says so.
QUIET = {
    "emit.heartbeats.enabled": "false",
    "heartbeats.replication.enabled": "false",
    "emit.offset-syncs.enabled": "false",
}


@dataclass
class Mesh:
    """Real clusters by their aliases, a file about them with what is *said* in it, a lake."""

    home: Path
    clusters: Mapping[str, Broker]
    said: Mapping[str, str]
    runs: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        servers = {f"{a}.bootstrap.servers": b.bootstrap_servers for a, b in self.clusters.items()}
        lines = {
            "clusters": ", ".join(self.clusters),
            **servers,
            "replication.factor": "1",
            "tasks.max": "2",
            "refresh.topics.interval.seconds": "1",
            "deltamirror.lake": "lake",
            "deltamirror.metrics.listen": "",  # tests that run side by side would take one port
            **QUIET,
            **self.said,
        }
        self.path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))

    @property
    def path(self) -> Path:
        """The configuration file."""
        return self.home / "mm2.properties"

    @property
    def config(self) -> Config:
        """What the file says."""
        return read_config(self.path)

    @property
    def context(self) -> MirrorContext:
        """The places the file names."""
        return MirrorContext(self.config)

    def mirror(self, **options: Any) -> None:
        """Mirror everything there is, in this process."""
        mirror(self.config, until_caught_up=True, **options)

    def cli(self, *args: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
        """Run a command of `deltamirror` on this file."""
        return run_cli(*args, "--config", str(self.path), timeout=timeout)

    def answer(self, *args: str) -> dict[str, Any]:
        """Return a command's JSON."""
        done = self.cli(*args, "--format", "json")
        return dict(json.loads(done.stdout))

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start `deltamirror run` in a process of its own; what still runs ends with the story."""
        with (self.home / "run.log").open("a") as log:
            run = subprocess.Popen(
                [sys.executable, "-m", "deltamirror", "run", *args, "--config", str(self.path)],
                cwd=ROOT,
                env=cli_environment(),
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=restore_signals,  # a test that Dagster had a part in may ignore some
            )
        self.runs.append(run)
        return run

    def end(self) -> None:
        """End the runs that were started and are still there."""
        for run in self.runs:
            if run.poll() is None:
                kill(run)

    def log(self) -> str:
        """Return what the started runs said."""
        return (self.home / "run.log").read_text()


class World(Mesh):
    """Clusters `us-east` and `eu-west` under a file of their own that mirrors *topics*."""

    def __init__(
        self,
        home: Path,
        source: Broker,
        target: Broker,
        topics: Collection[str],
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self.source, self.target, self.topics = source, target, topics
        self.extra = extra or {}
        said = {f"{FLOW}.enabled": "true", f"{FLOW}.topics": ", ".join(topics), **self.extra}
        super().__init__(home, {"us-east": source, "eu-west": target}, said)

    @contextmanager
    def staging(self, workers: SparkWorkers | None = None) -> Iterator[SourceStager]:
        """Open the staging of the source, to be ticked; its tasks run right here, without Spark."""
        staging = SourceStager(self.context, "us-east", workers or InlineWorkers())
        staging.open()
        try:
            yield staging
        finally:
            staging.close()

    def remote(self, topic: str) -> str:
        """Return what *topic* is called on the target."""
        return self.config.flow(FLOW).remote_topic(topic)

    def arrived(self, topic: str) -> list[Message]:
        """Return every record of the remote topic of *topic*, as a read_committed reader sees."""
        return consume_all(self.target.bootstrap_servers, self.remote(topic))


def until(happened: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    """Return when *happened* says so, asked every 20 ms. Raises TimeoutError with *what*."""
    give_up_at = time.monotonic() + within_s
    while not happened():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.02)


def kill(run: subprocess.Popen[str]) -> None:
    """End *run* as `kill -9` does, and it alone."""
    os.kill(run.pid, signal.SIGKILL)
    run.wait(WAIT_S)


def contents(messages: Collection[Message]) -> list[tuple[Any, ...]]:
    """Return partition, key, value, headers and timestamp of *messages*, in their order."""
    return [(m.partition(), m.key(), m.value(), m.headers(), m.timestamp()) for m in messages]
