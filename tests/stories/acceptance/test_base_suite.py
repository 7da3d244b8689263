"""Apache Kafka's own acceptance list of MirrorMaker 2 (MirrorConnectorsIntegrationBaseTest 4.3.0).

Each test has the name of its counterpart there, in this project's spelling, and asks at least what
that one asks; where MirrorMaker 2 may re-read some records, nothing is re-read here. As there, the
suite is gone through with names as they are (identity) and with transactional producers, too.
`docs/mm2-parity.md` lists them all.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager

import pytest

from assets.mirror import mirror
from resources.brokers import Broker
from resources.brokers import running as brokers_running
from tests.brokers import (
    Record,
    commit_group,
    committed_offsets,
    consume_all,
    create_topic,
    produce,
)
from tests.mm2_tools import MirrorClient, mm2_tools, translate_offsets
from tests.stories.world import Mesh, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

PARTITIONS, PER_PARTITION = 10, 10
RECORDS = PARTITIONS * PER_PARTITION
END_S = 60.0

VARIANTS = {
    "default": {},
    "identity": {"replication.policy.class": "IdentityReplicationPolicy"},
    "transactions": {},
}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    home = tmp_path_factory.mktemp("acceptance")
    both = {name: Broker(name, home / name) for name in ("primary", "backup")}
    with brokers_running(*both.values()):
        yield both


@pytest.fixture(scope="module")
def tools():
    with mm2_tools() as gateway:
        yield gateway


class Pair:
    """Clusters `primary` and `backup`, mirrored as upstream does, under names of its own."""

    def __init__(self, home, clusters, variant):
        self.home, self.clusters, self.variant = home, clusters, variant
        self.mark = uuid.uuid4().hex[:8]
        self.group = f"consumer-group-{self.mark}"

    def topic(self, number):
        return f"test-topic-{self.mark}-{number}"

    def remote(self, number, source="primary"):
        topic = self.topic(number)
        return topic if self.variant == "identity" else f"{source}.{topic}"

    def mesh(self, *flows, **said):
        """Return the file of *flows*, one way from the primary unless others are named."""
        return Mesh(
            self.home,
            self.clusters,
            {
                **{f"{flow}.enabled": "true" for flow in flows or ("primary->backup",)},
                "topics": rf"(primary\.|backup\.)?test-topic-{self.mark}-.*",
                "groups": self.group,
                "config.properties.exclude": r"delete\.retention\..*",
                "emit.offset-syncs.enabled": "true",
                "offset-syncs.topic.replication.factor": "1",
                "emit.checkpoints.interval.seconds": "1",
                "sync.group.offsets.interval.seconds": "1",
                "sync.topic.configs.interval.seconds": "1",
                "emit.heartbeats.enabled": "true",
                "heartbeats.replication.enabled": "true",
                "heartbeats.topic.replication.factor": "1",
                **VARIANTS[self.variant],
                **said,
            },
        )

    def make(self, number, on="primary", partitions=PARTITIONS, **configs):
        create_topic(self.at(on), self.topic(number), partitions, **configs)

    def write(self, number, on="primary", partitions=PARTITIONS, first=0):
        """Write ten records to each of the first *partitions* partitions."""
        records = [
            Record(b"key", b"message-%d-%d" % (p, first + i), partition=p)
            for p in range(partitions)
            for i in range(PER_PARTITION)
        ]
        transaction = f"app-{uuid.uuid4().hex}" if self.variant == "transactions" else None
        produce(self.at(on), self.topic(number), records, transactional_id=transaction)

    def read(self, topic, on="backup"):
        """Return the records of *topic*, none where it is not there."""
        try:
            return consume_all(self.at(on), topic)
        except KeyError:
            return []

    def has(self, number, records, source="primary", on="backup"):
        remote = self.remote(number, source)
        until(lambda: len(self.read(remote, on)) == records, f"{records} records of {remote}")

    def commit(self, number, offset_of, on="primary"):
        """Let the group have read each partition up to the record that *offset_of* it names."""
        places = {}
        for message in consume_all(self.at(on), self.topic(number)):
            places.setdefault(message.partition(), []).append(message.offset())
        offsets = {
            (self.topic(number), p): [*found, found[-1] + 1][offset_of(p)]
            for p, found in places.items()
        }
        commit_group(self.at(on), self.group, offsets)

    def unread(self, number, offsets):
        """Return how many records of the remote topic lie at or past *offsets*, by partition."""
        left = dict.fromkeys(range(PARTITIONS), 0)
        for message in self.read(self.remote(number)):
            left[message.partition()] += message.offset() >= offsets[message.partition()]
        return left

    def at(self, alias):
        return self.clusters[alias].bootstrap_servers

    def topics(self, on):
        from confluent_kafka.admin import AdminClient

        return set(AdminClient({"bootstrap.servers": self.at(on)}).list_topics(timeout=10).topics)


@pytest.fixture(params=[*VARIANTS])
def pair(request, tmp_path, clusters):
    return Pair(tmp_path, clusters, request.param)


@pytest.fixture
def plain(tmp_path, clusters):
    return Pair(tmp_path, clusters, "default")


@contextmanager
def running(mesh):
    """Run the flows of *mesh* for a block; what ends the run in between is raised after it."""
    stop, failed = threading.Event(), []

    def run():
        try:
            mirror(mesh.config, stop=stop)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(END_S)
    assert not thread.is_alive()
    assert failed == []


def translated(tools, pair, number, on="backup", source="primary"):
    """Return what MirrorMaker 2's own class says of the group, by partition of the remote topic."""
    try:
        found = translate_offsets(tools, pair.at(on), source, pair.group)
    except Exception:  # py4j's, where the topic of checkpoints is not there yet
        return {}
    remote = pair.remote(number, source)
    return {partition: offset for (topic, partition), offset in found.items() if topic == remote}


def test_replication(plain, tools):
    pair = plain
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
        until(lambda: len(translated(tools, pair, 1)) == PARTITIONS, "the group is translated")
        until(
            lambda: len(translated(tools, pair, 1, "primary", "backup")) == PARTITIONS,
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
        places = translated(tools, pair, 1, alias, source)
        assert not [
            m
            for m in pair.read(pair.remote(1, source), alias)
            if m.offset() >= places[m.partition()]
        ]
    cluster = mesh.site.cluster("backup")
    configs = cluster.topic_configs([pair.remote(1), pair.remote(2)])
    assert configs[pair.remote(1)]["cleanup.policy"].value == "compact"
    assert configs[pair.remote(2)]["retention.bytes"].value == "1000"
    assert configs[pair.remote(2)]["delete.retention.ms"].value != "1000"


def test_replication_with_empty_partition(pair, tools):
    pair.make(1)
    pair.write(1, partitions=PARTITIONS - 1)
    offsets = {(pair.topic(1), p): 0 for p in range(PARTITIONS)}
    commit_group(pair.at("primary"), pair.group, offsets)

    with running(pair.mesh()):
        pair.has(1, RECORDS - PER_PARTITION)
        until(lambda: len(translated(tools, pair, 1)) >= PARTITIONS - 1, "the group is translated")
    # Who reads everything there and commits has 0 for the partition that never held anything.
    last = {m.partition(): m.offset() + 1 for m in pair.read(pair.remote(1))}
    offsets = {(pair.remote(1), p): last.get(p, 0) for p in range(PARTITIONS)}
    commit_group(pair.at("backup"), pair.group, offsets)

    found = committed_offsets(pair.at("backup"), pair.group)
    assert found[pair.remote(1), PARTITIONS - 1] == 0
    assert set(translated(tools, pair, 1).values()) == {0}


@pytest.mark.parametrize("lag_max", [10, 0])
def test_one_way_replication_with_auto_offset_sync(pair, lag_max, tools):
    pair.make(1)
    pair.write(1)
    pair.commit(1, lambda p: p % PER_PARTITION)
    said = {"sync.group.offsets.enabled": "true", "offset.lag.max": str(lag_max)}

    with running(pair.mesh(**said)):
        pair.has(1, RECORDS)
        until(lambda: len(synced(pair, 1)) == PARTITIONS, "the group is on the backup")
        first = synced(pair, 1)
        pair.make(2)
        pair.write(2)
        pair.commit(2, lambda _: -1)
        until(lambda: len(synced(pair, 2)) == PARTITIONS, "and so is its second topic")

    assert pair.unread(1, first) == {p: PER_PARTITION - p % 10 for p in range(PARTITIONS)}
    assert set(pair.unread(2, synced(pair, 2)).values()) == {0}
    assert f"backup.{pair.topic(1)}" not in pair.topics("primary")


def synced(pair, number):
    found = committed_offsets(pair.at("backup"), pair.group)
    return {p: offset for (topic, p), offset in found.items() if topic == pair.remote(number)}


def test_replication_without_offset_sync_will_not_create_offset_syncs_topic(tmp_path, make_broker):
    clusters = {name: make_broker(name) for name in ("primary", "backup")}
    pair = Pair(tmp_path, clusters, "default")
    pair.make(1)
    pair.write(1)

    with running(pair.mesh(**{"emit.offset-syncs.enabled": "false"})):
        pair.has(1, RECORDS)

    assert not [t for name in clusters for t in pair.topics(name) if "offset-syncs" in t]


def test_offset_syncs_topics_on_target(tmp_path, make_broker, tools):
    clusters = {name: make_broker(name) for name in ("primary", "backup")}
    pair = Pair(tmp_path, clusters, "default")
    pair.make(1)
    pair.write(1)
    pair.commit(1, lambda _: -1)

    with running(pair.mesh(**{"offset-syncs.topic.location": "target"})):
        pair.has(1, RECORDS)
        until(lambda: len(translated(tools, pair, 1)) == PARTITIONS, "the group is translated")

    assert "mm2-offset-syncs.primary.internal" in pair.topics("backup")
    assert not [t for t in pair.topics("primary") if "offset-syncs" in t]


def test_no_checkpoints_if_no_records_are_mirrored(pair, tools):
    pair.make(1)
    pair.make(2)
    pair.write(2)
    commit_group(pair.at("primary"), pair.group, {(pair.topic(1), p): 0 for p in range(PARTITIONS)})
    pair.commit(2, lambda _: -1)

    with running(pair.mesh()):
        until(lambda: len(translated(tools, pair, 2)) == PARTITIONS, "the other topic's are there")
        before = translated(tools, pair, 1)
        pair.write(1)
        pair.commit(1, lambda _: -1)
        until(lambda: len(translated(tools, pair, 1)) == PARTITIONS, "now there are some")

    assert before == {}


def test_restart_replication(pair, tools):
    pair.make(1)
    pair.write(1)
    pair.commit(1, lambda _: -1)
    mesh = pair.mesh(**{"sync.group.offsets.enabled": "true"})

    with running(mesh):
        until(lambda: is_read(pair), "the group is on the backup, at the end")
        until(lambda: len(translated(tools, pair, 1)) == PARTITIONS, "its checkpoints are too")
        first = translated(tools, pair, 1)
    pair.write(1, first=PER_PARTITION)
    pair.commit(1, lambda _: -1)
    with running(mesh):
        pair.has(1, 2 * RECORDS)
        until(lambda: is_read(pair), "the group is there again")
        until(lambda: all_past(translated(tools, pair, 1), first), "every checkpoint advances")


def is_read(pair):
    """Return whether the synced group has nothing left to read on the backup."""
    places = synced(pair, 1)
    if len(places) < PARTITIONS or not pair.read(pair.remote(1)):
        return False
    return not any(pair.unread(1, places).values())


def test_offset_translation_behind_replication_flow(pair, tools):
    pair.make(1)
    for i in range(10):
        pair.write(1, first=i * PER_PARTITION)
    pair.commit(1, lambda _: 50)

    with running(pair.mesh()):
        pair.has(1, 10 * RECORDS)
        until(lambda: len(translated(tools, pair, 1)) == PARTITIONS, "the group is translated")
        middle = translated(tools, pair, 1)
        pair.commit(1, lambda _: 90)
        until(lambda: all_past(translated(tools, pair, 1), middle), "every checkpoint advances")
        late = translated(tools, pair, 1)
        pair.commit(1, lambda _: 10)
        until(lambda: all_past(middle, translated(tools, pair, 1)), "every checkpoint goes back")
        early = translated(tools, pair, 1)

    assert [set(pair.unread(1, at).values()) for at in (early, middle, late)] == [{90}, {50}, {10}]


def all_past(ahead, behind):
    return len(ahead) == len(behind) and all(ahead[p] > behind[p] for p in ahead)


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


def test_single_node_cluster(plain):
    pair = plain
    pair.make(1)
    pair.write(1)

    run = pair.mesh()
    process = run.start()
    try:
        pair.has(1, RECORDS)
        pair.make(2)
        pair.write(2)
        pair.has(2, RECORDS)
        assert process.poll() is None, run.log()
    finally:
        run.end()


def test_cluster_with_emit_offset_disabled(plain):
    pair = plain
    pair.make(1)
    pair.write(1)
    off = {"emit.offset-syncs.enabled": "false", "emit.checkpoints.enabled": "false"}

    with running(pair.mesh(**off)):
        pair.has(1, RECORDS)
