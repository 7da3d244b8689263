"""MirrorConnectorsIntegrationBaseTest: topics, records and MirrorMaker 2's own topics."""

from __future__ import annotations

import pytest

from tests.stories.mm2.acceptance.cluster_pair import PARTITIONS, PER_PARTITION, RECORDS, running
from tests.support.mm2_java_classes import MirrorClient
from tests.support.world import until

pytestmark = [pytest.mark.kafka, pytest.mark.story]


def test_replication(either, tools):
    pair = either
    pair.make(1, cleanup_policy="compact")
    pair.make(1, on="backup")
    pair.write(1)
    pair.write(1, on="backup")
    pair.commit(1, lambda _: -1)
    pair.commit(1, lambda _: -1, on="backup")
    mesh = pair.mesh("primary->backup", "backup->primary")

    with running(mesh):
        pair.has(1, RECORDS)
        pair.has(1, RECORDS, source="backup", on="primary")
        pair.make(2, retention_bytes=1000, delete_retention_ms=1000)
        pair.write(2)
        pair.has(2, RECORDS)
        until(lambda: len(pair.translated(tools, 1)) == PARTITIONS, "the group is translated")
        until(
            lambda: len(pair.translated(tools, 1, "primary", "backup")) == PARTITIONS,
            "the way back is translated",
        )
        until(lambda: "backup.heartbeats" in pair.topics("primary"), "signs of the backup")
        until(lambda: "primary.heartbeats" in pair.topics("backup"), "signs of the primary")

    for alias, other in (("primary", "backup"), ("backup", "primary")):
        client = MirrorClient(tools, pair.at(alias))
        assert other in client.names("upstreamClusters")
        assert client.hops(other) == 1
        client.close()
        assert {"heartbeats", f"mm2-offset-syncs.{other}.internal"} <= pair.topics(alias)
    for alias, source in (("backup", "primary"), ("primary", "backup")):
        assert len(pair.read(pair.topic(1), alias)) == RECORDS
        places = pair.translated(tools, 1, alias, source)
        assert not [
            m
            for m in pair.read(pair.remote(1, source), alias)
            if m.offset() >= places[m.partition()]
        ]
    cluster = mesh.context.cluster("backup")
    configs = cluster.topic_configs([pair.remote(1), pair.remote(2)])
    assert configs[pair.remote(1)]["cleanup.policy"].value == "compact"
    assert configs[pair.remote(2)]["retention.bytes"].value == "1000"
    assert configs[pair.remote(2)]["delete.retention.ms"].value != "1000"


def test_replication_without_offset_sync_will_not_create_offset_syncs_topic(either):
    pair = either
    pair.forget_offset_syncs()
    pair.make(1)
    pair.write(1)

    with running(pair.mesh(**{"emit.offset-syncs.enabled": "false"})):
        pair.has(1, RECORDS)

    assert not [t for name in pair.clusters for t in pair.topics(name) if "offset-syncs" in t]


def test_offset_syncs_topics_on_target(either, tools):
    pair = either
    pair.forget_offset_syncs()
    pair.make(1)
    pair.write(1)
    pair.commit(1, lambda _: -1)

    with running(pair.mesh(**{"offset-syncs.topic.location": "target"})):
        pair.has(1, RECORDS)
        until(lambda: len(pair.translated(tools, 1)) == PARTITIONS, "the group is translated")

    assert "mm2-offset-syncs.primary.internal" in pair.topics("backup")
    assert not [t for t in pair.topics("primary") if "offset-syncs" in t]


def test_replicate_from_latest(pair):
    pair.make(1)
    pair.write(1)
    mesh = pair.mesh(**{"primary.consumer.auto.offset.reset": "latest"})

    with running(mesh):
        until(lambda: pair.remote(1) in pair.topics("backup"), "the topic is there")
        pair.write(1, first=PER_PARTITION)
        pair.has(1, RECORDS)

    assert {int(m.value().rpartition(b"-")[2]) for m in pair.read(pair.remote(1))} == set(
        range(PER_PARTITION, 2 * PER_PARTITION)
    )
