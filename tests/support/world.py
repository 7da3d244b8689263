"""A mirrored world for stories: real clusters, a configuration file and a lake."""

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
from deltamirror.run.supervisor import Mirror
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

# Off by default: heartbeats of other tests on the shared brokers would count as records, and the
# offset syncs of all tests would be in one topic.
QUIET = {
    "emit.heartbeats.enabled": "false",
    "heartbeats.replication.enabled": "false",
    "emit.offset-syncs.enabled": "false",
}


@dataclass
class Mesh:
    """Real clusters by alias, a configuration file with *settings*, and a lake."""

    home: Path
    clusters: Mapping[str, Broker]
    settings: Mapping[str, str]
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
            **self.settings,
        }
        self.path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))

    @property
    def path(self) -> Path:
        """The configuration file."""
        return self.home / "mm2.properties"

    @property
    def config(self) -> Config:
        """The configuration that the file has."""
        return read_config(self.path)

    @property
    def context(self) -> MirrorContext:
        """The clusters and the lake of the configuration."""
        return MirrorContext(self.config)

    def mirror(self, **options: Any) -> None:
        """Mirror until caught up, in this process."""
        Mirror(self.config, until_caught_up=True, **options).run()

    def cli(self, *args: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
        """Run a command of `deltamirror` on this file."""
        return run_cli(*args, "--config", str(self.path), timeout=timeout)

    def answer(self, *args: str) -> dict[str, Any]:
        """Return the JSON output of a command."""
        done = self.cli(*args, "--format", "json")
        return dict(json.loads(done.stdout))

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start `deltamirror run` as a process; `end` kills it if it still runs."""
        with (self.home / "run.log").open("a") as log:
            run = subprocess.Popen(
                [sys.executable, "-m", "deltamirror", "run", *args, "--config", str(self.path)],
                cwd=ROOT,
                env=cli_environment(),
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=restore_signals,  # Dagster may have set signals to be ignored
            )
        self.runs.append(run)
        return run

    def end(self) -> None:
        """Kill the started runs that still run."""
        for run in self.runs:
            if run.poll() is None:
                kill(run)

    def log(self) -> str:
        """Return the log of the started runs."""
        return (self.home / "run.log").read_text()


class World(Mesh):
    """Clusters `us-east` and `eu-west` with a configuration file that mirrors *topics*."""

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
        settings = {f"{FLOW}.enabled": "true", f"{FLOW}.topics": ", ".join(topics), **self.extra}
        super().__init__(home, {"us-east": source, "eu-west": target}, settings)

    @contextmanager
    def staging(self, workers: SparkWorkers | None = None) -> Iterator[SourceStager]:
        """Yield an opened stager of the source. Its tasks run in this process, without Spark."""
        staging = SourceStager(self.context, "us-east", workers or InlineWorkers())
        staging.open()
        try:
            yield staging
        finally:
            staging.close()

    def remote(self, topic: str) -> str:
        """Return the name of the remote topic of *topic*."""
        return self.config.flow(FLOW).remote_topic(topic)

    def arrived(self, topic: str) -> list[Message]:
        """Return all records of the remote topic of *topic*, read with read_committed."""
        return consume_all(self.target.bootstrap_servers, self.remote(topic))


def until(happened: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    """Wait until *happened* returns True; call it every 20 ms. Raises TimeoutError with *what*."""
    give_up_at = time.monotonic() + within_s
    while not happened():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.02)


def kill(run: subprocess.Popen[str]) -> None:
    """Kill the process *run* with SIGKILL, without its children."""
    os.kill(run.pid, signal.SIGKILL)
    run.wait(WAIT_S)


def contents(messages: Collection[Message]) -> list[tuple[Any, ...]]:
    """Return partition, key, value, headers and timestamp of *messages*, in their order."""
    return [(m.partition(), m.key(), m.value(), m.headers(), m.timestamp()) for m in messages]
