"""The folder `.demo`: what the demo leaves there, and its clusters brought up from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from demo.kafka import brokers
from schemas.errors import DeltamirrorError

SOURCE, TARGET = "us-east", "eu-west"
FLOW = f"{SOURCE}->{TARGET}"

_PROPERTIES = """\
# Written by `make demo`: MirrorMaker 2's own format, so a file that works there works here.

# Two clusters, by the names that flows, remote topics and errors use.
clusters = {source}, {target}
{source}.bootstrap.servers = {source_at}
{target}.bootstrap.servers = {target_at}

# One flow: the topic `flights` of {source} becomes `{source}.flights` on {target}.
{source}->{target}.enabled = true
{source}->{target}.topics = flights, airlines, airports, planes, weather
# Whose committed offsets are translated.
{source}->{target}.groups = billing

# One broker each, so one replica each; MirrorMaker 2's default is 2.
replication.factor = 1
checkpoints.topic.replication.factor = 1

# No signs of life, once a second: all records that the demo counts are flights and what they need.
emit.heartbeats.enabled = false

# Small transactions, so that offsets soon differ: on the target each one's end takes an offset too.
deltamirror.replay.chunk.records = 10000

# Every record is staged here first; a relative path is meant from this file's folder.
deltamirror.lake = ./lake
"""


class DemoNotFoundError(DeltamirrorError):
    """There is no demo in the folder."""

    message = "there is no demo in {root}"
    hint = "Run `make demo` to create it."


class DemoIncompleteError(DeltamirrorError):
    """A part of an earlier demo is missing, while other parts are left."""

    message = "the earlier demo in {root} is incomplete: {reason}"
    hint = "Run `make down`, delete the folder and run `make demo` to start again."


@dataclass(frozen=True, slots=True)
class DemoWorkspace:
    """Where the demo lives: *root* holds its brokers, its configuration, its lake, its Dagster."""

    root: Path

    @property
    def kafka(self) -> Path:
        """Return the folder of the brokers."""
        return self.root / "kafka"

    @property
    def properties(self) -> Path:
        """Return the mm2.properties file."""
        return self.root / "mm2.properties"

    @property
    def lake(self) -> Path:
        """Return the lake."""
        return self.root / "lake"

    @property
    def dagster(self) -> Path:
        """Return the folder for DAGSTER_HOME."""
        return self.root / "dagster"

    @property
    def exists(self) -> bool:
        """Return whether a demo was ever begun here."""
        return self.properties.exists()

    def start_clusters(self) -> dict[str, str]:
        """Start both clusters on the data they have, and write mm2.properties if it is not there.

        Returns their addresses by alias. Raises DemoIncompleteError where a cluster's data is gone
        and other parts are left, and what starting a broker raises. A lake that is gone is no such
        part: everything in it can be staged and paired again.
        """
        known = {broker.name for broker in brokers.brokers(self.kafka)}
        gone = sorted({SOURCE, TARGET} - known)
        if gone and (known or self.lake.exists()):
            raise DemoIncompleteError(self.root, reason=f"the data of {' and '.join(gone)} is gone")
        servers = brokers.start_brokers([SOURCE, TARGET], self.kafka)
        self._write_properties(servers)
        return servers

    def _write_properties(self, servers: dict[str, str]) -> None:
        """Write the file anew where it does not name these *servers*; else it is the user's."""
        if self.properties.exists():
            text = self.properties.read_text()
            if all(f"{alias}.bootstrap.servers = {at}" in text for alias, at in servers.items()):
                return
        text = _PROPERTIES.format(
            source=SOURCE, target=TARGET, source_at=servers[SOURCE], target_at=servers[TARGET]
        )
        self.properties.write_text(text)
