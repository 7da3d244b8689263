"""Run the demo: mirror the flights of 2013 between two clusters and move one consumer group.

Each `$` line is a command line of deltamirror. All of them run in this process and share its Spark.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from rich.console import Console

from deltamirror.cli.main import main
from demo.data import TABLES
from demo.kafka_clients import load_tables, next_record, read_first_half
from demo.workspace import FLOW, SOURCE, TARGET, DemoWorkspace
from resources.spark.session import spark_context
from schemas.config.config import CONFIG_VARIABLE
from schemas.errors.base import DeltamirrorError
from schemas.kafka.partition import TopicPartition

GROUP, TOPIC = "billing", TABLES[0].name
TRANSLATE = ("translate", "--flow", FLOW, "--group", GROUP)


class DemoFailedError(DeltamirrorError):
    """A step of the demo did not end as promised: a defect of deltamirror."""

    hint = "Report it with the output of the demo."


def run_walkthrough(workspace: DemoWorkspace, console: Console) -> None:
    """Run every step in *workspace*. Raises DeltamirrorError at the first step that fails."""
    began = time.monotonic()
    demo = _Demo(console)
    workspace.root.mkdir(exist_ok=True)
    os.environ[CONFIG_VARIABLE] = str(workspace.properties)

    demo.title("Two Kafka clusters on this machine")
    servers = workspace.start_clusters()
    for alias, address in servers.items():
        demo.line(f"{alias}  {address}")

    demo.title(f"The flights of 2013 on {SOURCE}, and a group that has read half of them")
    if not load_tables(servers[SOURCE], TABLES, demo.line):
        demo.line("All records are there from an earlier run.")
    committed = read_first_half(servers[SOURCE], GROUP, TOPIC, TABLES[0].partitions)
    demo.line(f"{GROUP} has read {sum(committed.values()):,} flights and committed its offsets.")
    for partition in sorted(set(range(TABLES[0].partitions)) - set(committed)):
        demo.line(f"{TOPIC}[{partition}] is empty: no carrier's key hashes to it.")

    demo.title(f"Mirror them to {TARGET}")
    _start_spark(workspace.root / "spark.log")
    demo.run("run", "--until-caught-up")
    demo.run("status")

    demo.title(f"Move the group to {TARGET}")
    demo.run("groups", "snapshot")
    demo.run(*TRANSLATE)
    _check_next_records(demo, servers)

    demo.title("Compare source, lake and target, record by record")
    demo.run("verify")

    command = f".venv/bin/deltamirror --config {workspace.properties}"
    demo.title(f"Done in {time.monotonic() - began:.0f} s. What to type next")
    demo.line(f"{command} status")
    demo.line(f"{command} lag    # an end offset counts transaction markers too")
    demo.line(f"{command} --help")
    demo.line("make ui      # the same in Dagster: topics, records, offset map, lag")
    demo.line("make demo    # again: nothing is copied twice")
    demo.line("make down    # stop the clusters; their data stays in .demo")


class _Demo:
    """Print the steps and run deltamirror's commands in this process."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def title(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/bold]")

    def line(self, text: str) -> None:
        self._console.print(f"   {text}", markup=False, soft_wrap=True)

    def run(self, *arguments: str) -> None:
        """Print a command line and run it. Raises DemoFailedError for a non-zero exit code."""
        command = shlex.join(["deltamirror", *arguments])
        self._console.print(f"$ {command}", style="cyan", markup=False, soft_wrap=True)
        try:
            main(arguments)
        except SystemExit as end:
            if end.code:
                raise DemoFailedError(f"`{command}` ended with exit code {end.code}") from None

    def answer(self, *arguments: str) -> Any:  # noqa: ANN401 - JSON
        """Run a command quietly and return its JSON."""
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
            main([*arguments, "--format", "json"])
        return json.loads(output.getvalue())


def _start_spark(log: Path) -> None:
    """Start the Spark that `run` and `verify` share; send its output on stderr to *log*."""
    stderr = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        spark_context()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _check_next_records(demo: _Demo, servers: dict[str, str]) -> None:
    """Read the group's next record on both sides. Raises DemoFailedError if they differ."""
    partitions = demo.answer(*TRANSLATE)["partitions"]
    for at in partitions:
        upstream = TopicPartition(at["topic"], at["partition"])
        target = TopicPartition(at["target_topic"], at["target_partition"])
        if at["downstream_offset"] is None:
            raise DemoFailedError(f"{upstream} has no offset on {TARGET}")
        here = next_record(servers[SOURCE], upstream, at["upstream_offset"])
        there = next_record(servers[TARGET], target, at["downstream_offset"])
        if here is None or there is None or _content(here) != _content(there):
            raise DemoFailedError(f"{GROUP} does not resume at its next record of {upstream}")
        demo.line(f"{upstream}  next on both clusters: {_flight(there)}")
    if not partitions:
        raise DemoFailedError(f"no offset of {GROUP} was translated")
    demo.line(f"{GROUP} reads the same next record on both clusters: 0 read again, 0 skipped.")


def _content(message: Message) -> tuple[object, ...]:
    return message.key(), message.value(), message.headers(), message.timestamp()


def _flight(message: Message) -> str:
    """Return a flight's carrier, number, route and record timestamp (UTC)."""
    row = json.loads(message.value() or b"{}")
    at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    return f"{row['carrier']} {row['flight']} {row['origin']}→{row['dest']} {at:%Y-%m-%d %H:%M}"
