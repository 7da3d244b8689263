"""Hold the paths in `.demo` and start the demo's clusters from there."""

from __future__ import annotations

from pathlib import Path

from demo.kafka import brokers
from schemas.errors.base import DeltamirrorError

SOURCE, TARGET = "us-east", "eu-west"
FLOW = f"{SOURCE}->{TARGET}"

_PROPERTIES = """\
# Written by `make demo` in MirrorMaker 2's own format: a file that works there works here.

# Two clusters. Flows, remote topics and errors use these aliases.
clusters = {source}, {target}
{source}.bootstrap.servers = {source_at}
{target}.bootstrap.servers = {target_at}

# One flow: the topic `flights` of {source} becomes `{source}.flights` on {target}.
{source}->{target}.enabled = true
{source}->{target}.topics = flights, airlines, airports, planes, weather
# The groups whose committed offsets are translated.
{source}->{target}.groups = billing

# One broker each, so one replica each; MirrorMaker 2's default is 2.
replication.factor = 1
checkpoints.topic.replication.factor = 1

# No heartbeats: every record that the demo counts is a record of its five topics.
emit.heartbeats.enabled = false

# The demo's brokers have no authorizer, so no ACLs.
sync.topic.acls.enabled = false

# Small transactions, so that offsets soon differ: each transaction marker takes an offset too.
deltamirror.replay.chunk.records = 10000

# Every record is staged here first. A relative path starts at this file's folder.
deltamirror.lake = ./lake
"""


class DemoNotFoundError(DeltamirrorError):
    """There is no demo in the folder."""

    message = "there is no demo in {root}"
    hint = "Run `make demo` first."


class DemoIncompleteError(DeltamirrorError):
    """A part of an earlier demo is missing."""

    message = "the earlier demo in {root} is incomplete: the data of {missing} is missing"
    hint = "Run `make down`, delete the folder and run `make demo` to start again."


class DemoWorkspace:
    """The folder *root* with the demo's brokers, configuration, lake and Dagster state."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kafka = root / "kafka"
        self.properties = root / "mm2.properties"
        self.lake = root / "lake"
        self.dagster = root / "dagster"
        self.ui_state = root / "ui.json"

    def start_clusters(self) -> dict[str, str]:
        """Start both clusters on their data, write mm2.properties, return addresses by alias.

        The lake may be missing: everything in it can be staged and paired again. Raises
        DemoIncompleteError if a cluster's data is missing but other parts exist, BrokerStartError.
        """
        known = {broker.name for broker in brokers.brokers(self.kafka)}
        gone = sorted({SOURCE, TARGET} - known)
        if gone and (known or self.lake.exists()):
            raise DemoIncompleteError(self.root, missing=" and ".join(gone))
        servers = brokers.start_brokers([SOURCE, TARGET], self.kafka)
        self._write_properties(servers)
        return servers

    def _write_properties(self, servers: dict[str, str]) -> None:
        """Write the file unless it names *servers* already: a user's changes stay."""
        if self.properties.exists():
            text = self.properties.read_text()
            if all(f"{alias}.bootstrap.servers = {at}" in text for alias, at in servers.items()):
                return
        text = _PROPERTIES.format(
            source=SOURCE, target=TARGET, source_at=servers[SOURCE], target_at=servers[TARGET]
        )
        self.properties.parent.mkdir(parents=True, exist_ok=True)
        self.properties.write_text(text)
