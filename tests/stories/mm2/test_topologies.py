"""Topologies that are common with MirrorMaker 2, on real brokers."""

from __future__ import annotations

import re

import pytest
from confluent_kafka.admin import AdminClient

from deltamirror.verification.verify import verify
from demo.kafka.brokers import Broker, running_brokers
from schemas.mm2.records import Checkpoint
from tests.support.brokers import (
    Record,
    commit_group,
    committed_offsets,
    consume_all,
    create_topic,
    produce,
)
from tests.support.mm2_java_classes import MirrorClient, mm2_tools, translate_offsets
from tests.support.world import Mesh, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

RULE = """
from dataclasses import dataclass
from schemas.mm2.replication_policy import DefaultPolicy

@dataclass(frozen=True)
class Suffixed(DefaultPolicy):
    source_alias: str = ""

    def remote_topic(self, source_alias, topic):
        return f"{topic}-of-{source_alias}"

    def source_of(self, remote):
        return remote.rpartition("-of-")[2] if "-of-" in remote else None

    def upstream_topic(self, remote):
        return remote.rpartition("-of-")[0] or None
"""


@pytest.fixture(scope="module")
def third(tmp_path_factory):
    broker = Broker("third", tmp_path_factory.mktemp("kafka") / "third")
    with running_brokers(broker):
        yield broker


@pytest.fixture
def join(tmp_path, source, target, third):
    """Connect the clusters A, B and C with flows; keywords are more lines of the file."""

    def make(*flows, topics, **entries):
        lines = {f"{flow}.enabled": "true" for flow in flows} | {"topics": topics} | entries
        return Mesh(tmp_path, {"A": source, "B": target, "C": third}, lines)

    return make


def write(broker, topic, *values):
    if topic not in topics_on(broker, topic):
        create_topic(broker.bootstrap_servers, topic)
    produce(broker.bootstrap_servers, topic, [Record(b"k", value.encode()) for value in values])


def read(broker, topic):
    return [message.value().decode() for message in consume_all(broker.bootstrap_servers, topic)]


def topics_on(broker, topic):
    """Return the topics of *broker* whose name ends with *topic*."""
    found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10)
    return {name for name in found.topics if re.fullmatch(rf"(.*\W)?{re.escape(topic)}", name)}


def everywhere(topic):
    """Return the filter for *topic* with any prefix."""
    return rf"(.*\.)?{topic}"


def test_active_passive_mirrors_records_in_one_direction_only(join, source, target, unique_topic):
    write(source, unique_topic, "a1", "a2")
    mesh = join("A->B", topics=everywhere(unique_topic))

    mesh.mirror()

    assert read(target, f"A.{unique_topic}") == ["a1", "a2"]
    assert topics_on(source, unique_topic) == {unique_topic}
    assert topics_on(target, unique_topic) == {f"A.{unique_topic}"}


def test_active_active_makes_no_loop(join, source, target, unique_topic):
    write(source, unique_topic, "a1", "a2")
    write(target, unique_topic, "b1")
    mesh = join("A->B", "B->A", topics=everywhere(unique_topic))

    for _ in range(3):  # a loop would add records with each run
        mesh.mirror()

    assert topics_on(source, unique_topic) == {unique_topic, f"B.{unique_topic}"}
    assert topics_on(target, unique_topic) == {unique_topic, f"A.{unique_topic}"}
    assert read(source, f"B.{unique_topic}") == ["b1"]
    assert read(target, f"A.{unique_topic}") == ["a1", "a2"]
    assert verify(mesh.context).is_same


def test_an_aggregate_cluster_has_one_remote_topic_for_each_source(
    join, source, target, third, unique_topic
):
    write(source, unique_topic, "a1", "a2")
    write(target, unique_topic, "b1")
    mesh = join("A->C", "B->C", topics=unique_topic)

    mesh.mirror()

    assert read(third, f"A.{unique_topic}") == ["a1", "a2"]
    assert read(third, f"B.{unique_topic}") == ["b1"]
    assert verify(mesh.context).is_same


def test_a_source_of_two_flows_is_read_once(join, source, target, third, unique_topic):
    write(source, unique_topic, *map(str, range(50)))
    mesh = join("A->B", "A->C", topics=unique_topic)

    mesh.mirror()

    for broker in (target, third):
        assert read(broker, f"A.{unique_topic}") == [*map(str, range(50))]
    staged = mesh.context.lake.records("A").delta.to_pyarrow_table(columns=["offset"])
    assert sorted(staged["offset"].to_pylist()) == list(range(50))


def test_spokes_get_topics_of_other_spokes_through_the_hub_and_never_their_own(
    join, source, target, third, unique_topic
):
    hub = third
    for broker, value in ((source, "a"), (target, "b"), (hub, "c")):
        write(broker, unique_topic, value)
    flows = ("A->C", "B->C", "C->A", "C->B")
    mesh = join(*flows, topics=everywhere(unique_topic))

    for _ in range(3):
        mesh.mirror()

    assert topics_on(source, unique_topic) == {
        unique_topic, f"C.{unique_topic}", f"C.B.{unique_topic}"
    }  # fmt: skip
    assert topics_on(target, unique_topic) == {
        unique_topic, f"C.{unique_topic}", f"C.A.{unique_topic}"
    }  # fmt: skip
    assert topics_on(hub, unique_topic) == {unique_topic, f"A.{unique_topic}", f"B.{unique_topic}"}
    assert read(source, f"C.B.{unique_topic}") == ["b"]
    assert read(target, f"C.A.{unique_topic}") == ["a"]


@pytest.fixture
def chain(tmp_path, third):
    """A chain of the clusters A, B and C; A and B are new."""
    made = {name: Broker(name, tmp_path / name) for name in ("A", "B")}
    with running_brokers(*made.values()):
        yield made | {"C": third}


def test_a_chain_carries_topics_groups_and_heartbeats_over_two_hops(
    chain, tmp_path, unique_topic, names
):
    group, far = names("billing"), f"B.A.{unique_topic}"
    first, middle, last = (broker.bootstrap_servers for broker in chain.values())
    create_topic(first, unique_topic)
    records = [Record(b"k", b"%d" % n) for n in range(10)]
    produce(first, unique_topic, records[:6], transactional_id=names("app"))
    produce(first, unique_topic, records[6:])
    commit_group(first, group, {(unique_topic, 0): 4})
    entries = {
        **{f"{flow}.enabled": "true" for flow in ("A->B", "B->C")},
        "topics": everywhere(unique_topic),
        "groups": group,
        "emit.heartbeats.enabled": "true",
        "heartbeats.replication.enabled": "true",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
    }
    mesh = Mesh(tmp_path, chain, entries)
    mesh.start()
    try:
        until(lambda: (far, 0) in committed_offsets(last, group), "the group comes through")
        until(lambda: group in checkpointed(last, "B.checkpoints.internal"), "its checkpoint does")
        until(lambda: "B.A.heartbeats" in topics_on(chain["C"], "heartbeats"), "heartbeats do")
    finally:
        mesh.end()

    with mm2_tools() as tools:
        client = MirrorClient(tools, last)
        assert client.names("heartbeatTopics") == {"heartbeats", "B.heartbeats", "B.A.heartbeats"}
        assert client.names("upstreamClusters") == {"A", "B"}
        assert (client.hops("B"), client.hops("A")) == (1, 2)
        assert client.names("checkpointTopics") == {"B.checkpoints.internal"}
        assert client.names("remoteTopics", "B") >= {far, "B.heartbeats", "B.A.heartbeats"}
        resumes = client.offsets("B", group)
        client.close()
        assert translate_offsets(tools, middle, "A", group) == {
            (f"A.{unique_topic}", 0): resumes_at(mesh, "A->B", group)
        }
    (offset, _) = resumes[far, 0]
    assert offset == resumes_at(mesh, "B->C", group) == committed_offsets(last, group)[far, 0]
    arrived = consume_all(last, far)
    assert [m.value() for m in arrived] == [record.value for record in records]
    assert [m.value() for m in arrived if m.offset() >= offset] == [r.value for r in records[4:]]


def checkpointed(bootstrap, topic):
    """Return the groups in *topic*."""
    try:
        found = consume_all(bootstrap, topic)
    except KeyError:  # the topic does not exist yet
        return set()
    return {Checkpoint.read(each.key(), each.value()).group for each in found}


def resumes_at(mesh, flow, group):
    answer = mesh.answer("translate", "--flow", flow, "--group", group)
    (partition,) = answer["partitions"]
    return partition["downstream_offset"]


def test_a_migration_keeps_topic_names(join, source, target, unique_topic):
    write(source, unique_topic, "a1", "a2", "a3")
    policy = {"replication.policy.class": "IdentityReplicationPolicy"}
    mesh = join("A->B", topics=unique_topic, **policy)

    mesh.mirror()

    assert topics_on(target, unique_topic) == {unique_topic}
    assert read(target, unique_topic) == ["a1", "a2", "a3"]


def test_a_custom_replication_policy_names_the_remote_topics(
    join, source, target, unique_topic, tmp_path, monkeypatch
):
    (tmp_path / "acme.py").write_text(RULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write(source, unique_topic, "a1")
    mesh = join("A->B", topics=unique_topic, **{"replication.policy.class": "acme:Suffixed"})

    done = mesh.cli("run", "--until-caught-up")

    assert done.returncode == 0, done.stderr
    assert read(target, f"{unique_topic}-of-A") == ["a1"]


def test_excluded_topics_reach_neither_the_target_nor_the_lake(join, source, target, unique_topic):
    public, private = f"public-{unique_topic}", f"private-{unique_topic}"
    write(source, public, "shown")
    write(source, private, "never shown")
    mesh = join("A->B", topics=rf".*{unique_topic}", **{"topics.exclude": "private-.*"})

    mesh.mirror()

    assert read(target, f"A.{public}") == ["shown"]
    assert topics_on(target, private) == set()
    staged = mesh.context.lake.records("A").delta.to_pyarrow_table(columns=["topic", "value"])
    assert set(staged["topic"].to_pylist()) == {public}


def test_clusters_limits_a_run_to_flows_into_them(join, source, target, third, unique_topic):
    write(source, unique_topic, "a1")
    mesh = join("A->B", "A->C", topics=unique_topic)

    done = mesh.cli("run", "--clusters", "C", "--until-caught-up")

    assert done.returncode == 0, done.stderr
    assert read(third, f"A.{unique_topic}") == ["a1"]
    assert topics_on(target, unique_topic) == set()
