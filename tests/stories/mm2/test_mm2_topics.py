"""Apache's MirrorMaker 2 and deltamirror, given the same file, make the same of a target."""

from dataclasses import replace

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from demo.kafka.brokers import Broker, running_brokers
from pipeline.topics.configs import DYNAMIC_TOPIC_CONFIG, UNCHANGED_TIMESTAMPS
from resources.kafka.cluster import KafkaCluster
from schemas.kafka.acl import TopicAcl
from schemas.mm2.records import Checkpoint
from tests.support.brokers import ROOT, Record, commit_group, consume_all, produce
from tests.support.mm2_reference import MirrorMaker, mirror_maker
from tests.support.world import FLOW, Mesh, contents, kill, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

GUARD = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SAID = {
    f"{FLOW}.enabled": "true",
    "eu-west->us-east.emit.heartbeats.enabled": "false",
    # MirrorMaker 2 reads it at the flow only: here it means nothing.
    "use.defaults.from": "source",
}
TOPICS = {
    "plain": (3, {}),
    "empty": (2, {}),
    "compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
    "sized": (1, {"retention.bytes": "1000000", "retention.ms": "-1", "segment.ms": "9000"}),
    "as-by-default": (1, {"max.message.bytes": "1048588"}),
    "stamped": (1, {"message.timestamp.after.max.ms": "9000"}),
    "excluded": (1, {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}),
    "beforehand": (2, {"retention.bytes": "5000"}),
    "wide-beforehand": (1, {}),
    "dotted.name": (1, {}),
    "of.internal": (1, {}),
    "left.replica": (1, {}),
    "mm2-own.internal": (1, {}),
    "eu-west.came-from-there": (1, {}),
}
LAST = {"last": (1, {"segment.ms": "6000"})}
LATE = {"late": (1, {"retention.ms": "7000000"})}
MADE_BEFOREHAND = {
    "beforehand": (1, {"retention.bytes": "1", "segment.ms": "1000"}),
    "wide-beforehand": (3, {"flush.ms": "7", "flush.messages": "7"}),
}
OPERATIONS = ("READ", "WRITE", "ALL", "DESCRIBE", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS")
# What MirrorMaker 2 keeps on a target as a Connect cluster; deltamirror has its lake.
CONNECTS_OWN = {f"mm2-{what}.us-east.internal" for what in ("configs", "offsets", "status")}


def acls():
    """Yield rules of each kind for a topic that is replicated, and some that are left alone."""
    for operation in OPERATIONS:
        for permission in ("ALLOW", "DENY"):
            yield TopicAcl("plain", f"User:{operation}", "*", operation, permission)
    read = TopicAcl("plain", "User:bob", "10.0.0.1", "READ", "ALLOW")
    for topic in ("*", "not-there", "left.replica", "eu-west.came-from-there"):
        yield replace(read, topic=topic)


def cluster(broker):
    return KafkaCluster(broker.name, {"bootstrap.servers": broker.bootstrap_servers})


def make(broker, topics, prefix=""):
    for name, (partitions, configs) in topics.items():
        cluster(broker).create_topic(prefix + name, partitions, 1, configs)


def fill(broker, topics):
    for name in topics:
        produce(broker.bootstrap_servers, name, [Record(b"k", b"v")])


def say_of_all_topics(broker, name, value):
    """Set what holds for all topics of a running broker."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([asked]).values():
        altered.result(30)


def remote_topics(broker):
    """Return partitions and own settings, but for those of timestamps, of what was replicated."""
    there = cluster(broker)
    found = {
        name: topic
        for name, topic in there.topics().items()
        if name.startswith("us-east.") and not name.endswith(".checkpoints.internal")
    }
    configs = there.topic_configs(found)
    return {
        name: (
            topic.partitions,
            {
                each: value.value
                for each, value in sorted(configs[name].items())
                if value.source == DYNAMIC_TOPIC_CONFIG and each not in UNCHANGED_TIMESTAMPS
            },
        )
        for name, topic in found.items()
        if name in configs
    }


def names_of(topics):
    return {f"us-east.{name}" for name in topics}


REPLICATED = names_of(TOPICS) - names_of(
    ["left.replica", "mm2-own.internal", "eu-west.came-from-there"]
)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    home = tmp_path_factory.mktemp("clusters")
    made = {
        name: Broker(name, home / name, properties={**GUARD, **more})
        for name, more in (
            ("source", {"log.flush.interval.messages": "90000"}),
            ("theirs", {}),
            ("ours", {}),
        )
    }
    with running_brokers(*made.values()):
        make(made["source"], TOPICS)
        say_of_all_topics(made["source"], "log.retention.bytes", "777000000")
        fill(made["source"], TOPICS.keys() - {"empty"})
        cluster(made["source"]).create_acls(list(acls()))
        for target in ("theirs", "ours"):
            make(made[target], MADE_BEFOREHAND, "us-east.")
        yield made


@pytest.fixture(scope="module")
def both(brokers, tmp_path_factory):
    """Run both, each into a target of its own, for the tests of this file."""
    home = tmp_path_factory.mktemp("both")
    theirs = {"us-east": brokers["source"], "eu-west": brokers["theirs"]}
    ours = Mesh(home, {**theirs, "eu-west": brokers["ours"]}, {})
    with mirror_maker(home / "mm2", theirs, SAID) as judge:
        text = judge.path.read_text()
        there, here = (brokers[name].bootstrap_servers for name in ("theirs", "ours"))
        ours.path.write_text(text.replace(there, here))
        ours.start()
        try:
            yield judge, ours
        finally:
            ours.end()


def agree(judge: MirrorMaker, brokers, look, has_come, what):
    """Return what both came to: MirrorMaker 2 first, and deltamirror the same."""
    judge.until(lambda: has_come(look(brokers["theirs"])), f"MirrorMaker 2: {what}")
    try:
        until(lambda: look(brokers["ours"]) == look(brokers["theirs"]), what)
    except TimeoutError:
        assert look(brokers["ours"]) == look(brokers["theirs"])
    return look(brokers["ours"])


def test_topics_partitions_and_settings_equal_mirrormaker_2s(both, brokers):
    found = agree(
        both[0],
        brokers,
        remote_topics,
        lambda there: (
            there.keys() >= REPLICATED and "flush.ms" not in there["us-east.wide-beforehand"][1]
        ),
        "all topics are there and synced",
    )

    of_all = {"retention.bytes": "777000000"}
    assert found["us-east.plain"] == (3, of_all)
    assert found["us-east.beforehand"] == (2, {"retention.bytes": "5000"})
    # What a broker's file says on the source is left as it is on the target.
    assert found["us-east.wide-beforehand"] == (3, {"flush.messages": "7", **of_all})


def test_new_topics_new_partitions_and_changed_settings_follow_as_with_mirrormaker_2(both, brokers):
    source = cluster(brokers["source"])
    make(brokers["source"], LATE)
    fill(brokers["source"], LATE)
    source.add_partitions("plain", 4)
    source.alter_topic_configs({"sized": {"retention.bytes": None, "segment.ms": "8000"}})

    agree(
        both[0],
        brokers,
        remote_topics,
        lambda there: (
            "us-east.late" in there
            and there["us-east.plain"][0] == 4
            and there["us-east.sized"][1].get("segment.ms") == "8000"
        ),
        "what is new is there",
    )


def test_acls_equal_mirrormaker_2s(both, brokers):
    found = agree(
        both[0], brokers, lambda b: cluster(b).topic_acls(), lambda there: len(there) == 17, "ACLs"
    )

    assert ("ALLOW", "WRITE") not in {(acl.permission, acl.operation) for acl in found}
    assert {"us-east.*", "us-east.not-there"} <= {acl.topic for acl in found}


def test_internal_topics_differ_exactly_as_the_parity_page_lists(both, brokers):
    theirs, ours = (
        cluster(brokers[name]).topics().keys() - remote_topics(brokers[name])
        for name in ("theirs", "ours")
    )

    assert theirs >= CONNECTS_OWN
    assert ours & CONNECTS_OWN == set()
    page = (ROOT / "docs" / "mm2-parity.md").read_text(encoding="utf-8")
    assert [name for name in theirs ^ ours if f"`{name}`" not in page] == []


def test_source_defaults_equal_mirrormaker_2s_if_the_flow_requests_them(both, brokers):
    judge, ours = both
    judge.stop()
    kill(ours.runs[-1])
    for path in (judge.path, ours.path):
        path.write_text(path.read_text() + f"{FLOW}.use.defaults.from = source\n")

    make(brokers["source"], LAST)
    fill(brokers["source"], LAST)
    judge.start()
    ours.start()
    found = agree(
        judge,
        brokers,
        remote_topics,
        lambda there: "us-east.last" in there and "segment.ms" in there["us-east.plain"][1],
        "defaults are explicit",
    )

    assert found["us-east.plain"][1]["retention.ms"] == "604800000"


@pytest.fixture(scope="module")
def more(both, brokers):
    """Write odd records and plain ones to `plain`; return how many it holds then."""
    odd = [
        Record(b"k", b"v", [("h", b"1"), ("h", b"2"), ("null", None), ("", b"")]),
        Record(None, b"no key"),
        Record(b"no value", None),
        Record(b"", b""),
    ]
    records = [*odd, *(Record(b"%d" % n, b"%d" % n) for n in range(100))]
    placed = [each._replace(partition=n % 3) for n, each in enumerate(records)]
    produce(brokers["source"].bootstrap_servers, "plain", placed)
    return len(records) + 1


def test_records_equal_mirrormaker_2s(both, brokers, more):
    found = agree(both[0], brokers, contents_of_plain, lambda there: len(there) == more, "records")

    assert [None, b"no key"] in [[key, value] for _, key, value, *_ in found]


def contents_of_plain(broker):
    try:
        return contents(consume_all(broker.bootstrap_servers, "us-east.plain"))
    except KeyError:
        return []


def test_heartbeats_and_checkpoints_equal_mirrormaker_2s_by_key(both, brokers, more):
    offsets = {("plain", p): end for p, end in ((0, 30), (1, 20), (2, 34))}
    commit_group(brokers["source"].bootstrap_servers, "billing", offsets)

    agree(both[0], brokers, heartbeats, bool, "heartbeats")
    agree(both[0], brokers, upstream_offsets, lambda found: len(found) == 3, "checkpoints")

    theirs, ours = (checkpoints(brokers[name]) for name in ("theirs", "ours"))
    # MirrorMaker 2 knows a sample of the offsets, and goes back to the last one that it knows.
    assert all(theirs[key].downstream_offset <= ours[key].downstream_offset for key in ours)


def heartbeats(broker):
    return {message.key() for message in latest(broker, "heartbeats")}


def checkpoints(broker):
    found = latest(broker, "us-east.checkpoints.internal")
    return {m.key(): Checkpoint.read(m.key(), m.value()) for m in found}


def upstream_offsets(broker):
    return {key: each.upstream_offset for key, each in checkpoints(broker).items()}


def latest(broker, topic):
    """Return the last record of each key of *topic*, none where it is not there yet."""
    try:
        found = consume_all(broker.bootstrap_servers, topic, "read_uncommitted")
    except KeyError:
        return []
    return list({message.key(): message for message in found}.values())
