"""MirrorMaker 2's own Java classes read deltamirror's topics, and agree with `translate`."""

import signal
from collections import defaultdict

import pytest

from deltamirror.groups.checkpoints import map_index
from demo.kafka.brokers import Broker, running_brokers
from pipeline.offset_map.translate import translate
from schemas.kafka.partition import TopicPartition
from schemas.mm2.records import Checkpoint, OffsetSync
from tests.support.brokers import Record, consume_all, create_topic, produce
from tests.support.mm2_java_classes import (
    MirrorClient,
    SyncStore,
    mm2_tools,
    translate_groups,
    translate_offsets,
)
from tests.support.world import FLOW, World, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

PARTITIONS, RECORDS = 2, 700
SYNCS = "mm2-offset-syncs.eu-west.internal"
CHECKPOINTS = "us-east.checkpoints.internal"
# Commits of the groups on the source by partition, and their metadata.
GROUPS = {
    "billing": {0: (700, ""), 1: (3, "")},
    "reports": {0: (352, "AgAAAYvP5WgA")},
    "late": {1: (0, "")},
}
EVERY_SECOND = {
    "emit.heartbeats.enabled": "true",
    "heartbeats.replication.enabled": "true",
    "emit.offset-syncs.enabled": "true",
    "emit.checkpoints.interval.seconds": "1",
    "deltamirror.replay.chunk.records": "200",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A finished run: records, aborted ones too, groups, heartbeats."""
    home = tmp_path_factory.mktemp("judged")
    source, target = Broker("us-east", home / "us-east"), Broker("eu-west", home / "eu-west")
    with running_brokers(source, target):
        world = World(home, source, target, ["orders"], EVERY_SECOND)
        _fill(world)
        run = world.start()
        until(lambda: _has_told(world), "checkpoints and heartbeats are there")
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0, world.log()
        yield world
        world.end()


def _fill(world):
    at = world.source.bootstrap_servers
    create_topic(at, "orders", PARTITIONS)
    for p in range(PARTITIONS):
        values = [Record(b"k", b"%d" % n, partition=p) for n in range(RECORDS)]
        produce(at, "orders", values[:350], transactional_id="app")
        produce(at, "orders", values[:5], transactional_id="app", commit=False)
        produce(at, "orders", values[350:])
    cluster = world.context.cluster("us-east")
    for group, commits in GROUPS.items():
        cluster.commit_offsets(
            group, {TopicPartition("orders", p): commit for p, commit in commits.items()}
        )


def _has_told(world):
    at = world.target.bootstrap_servers
    try:
        keys = {_checkpoint(each).key for each in consume_all(at, CHECKPOINTS)}
        beats = consume_all(at, "us-east.heartbeats")
    except KeyError:  # the topic does not exist yet
        return False
    # The last offset syncs are written after all records have arrived.
    return bool(beats) and len(keys) == 4 and _lag(world) == 0


def _checkpoint(message):
    return Checkpoint.read(message.key(), message.value())


def _lag(world):
    partitions = world.answer("lag")["flows"][0]["partitions"]
    return sum(each["lag"] for each in partitions if each["topic"] == "orders")


@pytest.fixture(scope="module")
def gateway():
    with mm2_tools() as tools:
        yield tools


@pytest.fixture(scope="module")
def ours(here):
    """Offsets of `deltamirror translate` for each group, with the group's metadata."""
    return {
        group: {
            (at["target_topic"], at["target_partition"]): (
                at["downstream_offset"],
                commits[at["partition"]][1],
            )
            for at in here.answer("translate", "--flow", FLOW, "--group", group)["partitions"]
        }
        for group, commits in GROUPS.items()
    }


def test_translate_offsets_returns_the_offsets_of_our_translate(here, gateway, ours):
    for group, expected in ours.items():
        found = translate_offsets(gateway, here.target.bootstrap_servers, "us-east", group)
        assert found == {at: offset for at, (offset, _) in expected.items()}


def test_translate_offsets_of_all_groups_returns_the_offsets_of_our_translate(here, gateway, ours):
    found = translate_groups(gateway, here.target.bootstrap_servers, "us-east", ".*")

    assert found == ours


@pytest.fixture(scope="module")
def client(here, gateway):
    made = MirrorClient(gateway, here.target.bootstrap_servers)
    yield made
    made.close()


def test_remote_consumer_offsets_returns_our_offsets_with_the_groups_metadata(client, ours):
    assert {group: client.offsets("us-east", group) for group in GROUPS} == ours


def test_remote_consumer_offsets_of_a_group_pattern_returns_the_offsets_of_our_translate(
    client, ours
):
    found = client.offsets_of_groups("us-east", "billing|l.*")

    assert found == {group: ours[group] for group in ("billing", "late")}


def test_mirror_client_finds_our_topics_and_where_they_come_from(client):
    assert client.names("checkpointTopics") == {CHECKPOINTS}
    assert client.names("heartbeatTopics") == {"heartbeats", "us-east.heartbeats"}
    assert client.names("remoteTopics") == {"us-east.orders", "us-east.heartbeats"}
    assert client.names("remoteTopics", "us-east") == {"us-east.orders", "us-east.heartbeats"}
    assert client.names("upstreamClusters") == {"us-east"}
    assert client.hops("us-east") == 1


def _lives(here):
    index = map_index(here.context, here.config.flow(FLOW))
    return {
        p: index.mapped_incarnation(TopicPartition("orders", p)).runs for p in range(PARTITIONS)
    }


@pytest.mark.parametrize("knows_former", [True, False])
def test_mirrormaker_2s_translation_with_our_offset_syncs_is_never_ahead_of_ours(
    here, gateway, knows_former
):
    sides = [(broker.name, broker.bootstrap_servers) for broker in (here.source, here.target)]
    store = SyncStore(gateway, *sides, knows_former=knows_former)
    found = defaultdict(list)
    try:
        for p, runs in _lives(here).items():
            for committed in range(runs.upstream_end + 3):
                theirs = store.translate("orders", p, committed)
                if theirs not in (None, -1):
                    found[p].append(translate(committed, runs) - theirs)
    finally:
        store.close()

    for again in found.values():
        assert min(again) == 0
        assert again[-1] == 0  # a group that had read all records
    # With earlier checkpoints it translates every offset that was ever committed.
    least = RECORDS if knows_former else 1
    assert all(len(again) >= least for again in found.values())


def test_our_offset_syncs_are_exact_offset_pairs_in_a_compacted_topic_on_the_source(here):
    places = defaultdict(list)
    for each in consume_all(here.source.bootstrap_servers, SYNCS):
        sync = OffsetSync.read(each.key(), each.value())
        if sync.topic == "orders":
            places[sync.partition].append((sync.upstream_offset, sync.downstream_offset))

    for p, runs in _lives(here).items():
        assert places[p] == [(up, translate(up, runs)) for up, _ in places[p]]
        assert places[p] == sorted(places[p])
        assert places[p][0][0] == 0
        assert places[p][-1] == (runs.upstream_end - 1, runs.downstream_end - 1)
    topic = here.context.cluster("us-east").topics([SYNCS])[SYNCS]
    settings = here.context.cluster("us-east").topic_configs([SYNCS])[SYNCS]
    assert (topic.partitions, settings["cleanup.policy"].value) == (1, "compact")
