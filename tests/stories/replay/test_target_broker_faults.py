"""Faults of the target's brokers: truncation, missing replicas, full disk, quota, freeze."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess

import pytest
from confluent_kafka.admin import NewTopic

from demo.kafka.brokers import Broker, running_brokers
from demo.kafka.jars import kafka_home
from pipeline.replay.slot_replay import replay_slot
from resources.java import java
from resources.kafka import slot_producer as producer_module
from resources.kafka.slot_producer import SlotProducer
from schemas.config.flow import Flow
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import ChainLink, PartitionWork, SlotWork
from tests.support.brokers import Record, consume_all, create_topic, produce
from tests.support.cli import answer, run
from tests.support.fake_cluster import FakeStageReader, RecordContent, neighbours
from tests.support.target_faults import (
    admin,
    arrived,
    assert_stops,
    delete_map,
    delete_topic,
    pairs,
    resume,
    write,
)
from tests.support.world import FLOW, World, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]


@pytest.fixture
def on(tmp_path, source):
    """Return a function that creates a world with its own target: `on(broker, "topic")`."""
    made = []

    def make(broker, *topics, **extra):
        made.append(World(tmp_path, source, broker, topics, extra))
        return made[-1]

    yield make
    for each in made:
        each.end()


# The target's log


def test_a_truncated_target_log_is_reported_and_written_again_on_request(
    on, make_broker, source, unique_topic
):
    target = make_broker("cut")
    create_topic(source.bootstrap_servers, unique_topic)
    here = on(target, unique_topic)
    write(here, unique_topic, b"a", b"b")
    here.mirror()
    log = target.home / "data" / f"{here.remote(unique_topic)}-0"
    target.stop()
    shutil.copytree(log, target.home / "older")
    target.start()
    write(here, unique_topic, b"c", b"d")
    here.mirror()
    target.stop()
    shutil.rmtree(log)
    shutil.copytree(target.home / "older", log)
    target.start()
    assert arrived(here, unique_topic) == [b"a", b"b"]
    write(here, unique_topic, b"e")

    assert_stops(here, "the target's log ends at 3, but records up to 5 were written")
    assert arrived(here, unique_topic) == [b"a", b"b"]

    delete_topic(here, here.remote(unique_topic))
    resume(here, unique_topic)
    here.mirror()
    assert arrived(here, unique_topic) == [b"a", b"b", b"c", b"d", b"e"]


def test_records_that_the_targets_retention_deletes_at_once_are_reported_and_not_sent_again(
    on, make_broker, source, unique_topic
):
    quick = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "200"}
    target = make_broker("brief", properties=quick)
    create_topic(source.bootstrap_servers, unique_topic)
    # With synced configs the target would keep the records without a limit, like the source.
    here = on(target, unique_topic, **{"sync.topic.configs.enabled": "false"})
    remote = here.remote(unique_topic)
    create_topic(target.bootstrap_servers, remote, retention_ms=3_600_000)
    write(here, unique_topic, b"a", b"b")  # of the year 1970
    here.mirror()
    until(lambda: arrived(here, unique_topic) == [], "retention deletes them")
    delete_map(here)
    produce(source.bootstrap_servers, unique_topic, [Record(b"k", b"c")])

    here.mirror()

    assert arrived(here, unique_topic) == [b"c"]
    assert [up for up, _ in pairs(here, unique_topic)] == [2]
    compared = answer("verify", "--config", str(here.path))
    (flow,) = compared["flows"]
    assert (compared["lost"], compared["duplicated"], flow["expired_downstream"]) == (0, 0, 2)


# Replicas and disk space


def second(broker, home):
    """Return another broker of the cluster of *broker*."""
    joined = Broker("second", home)
    port, quorum = joined.bootstrap_servers, f"127.0.0.1:{broker._state.controller_port}"
    joined._state.cluster_id = broker.cluster_id
    joined.properties |= {
        "node.id": "2",
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://{port}",
        "controller.quorum.voters": f"1@{quorum}",
    }
    return joined


def replicas_in_sync(here, topic):
    (partition,) = admin(here).list_topics(topic, timeout=30).topics[topic].partitions.values()
    return len(partition.isrs)


def test_a_partition_without_enough_replicas_waits_alone_and_continues_when_it_has_them(
    on, make_broker, source, names, tmp_path
):
    target, unreplicated = make_broker("short"), names("unreplicated")
    healthy = neighbours(unreplicated, 1)[0]
    here = on(target, unreplicated, healthy)
    other = second(target, tmp_path / "second")
    create_topic(source.bootstrap_servers, healthy)
    write(here, healthy, b"a")
    here.mirror()  # the coordinators are on the broker that stays
    with running_brokers(other):
        configs = {"min.insync.replicas": "2", "retention.ms": "-1"}
        pair = NewTopic(here.remote(unreplicated), 1, 2, config=configs)
        admin(here).create_topics([pair])[pair.topic].result(30)
        create_topic(source.bootstrap_servers, unreplicated)
        write(here, unreplicated, b"a")
        here.mirror()
        other.stop()
        until(lambda: replicas_in_sync(here, pair.topic) == 1, "it is out of sync")
        for topic in (unreplicated, healthy):
            write(here, topic, b"b")

        assert_stops(here, "1 of its replicas in sync, min.insync.replicas is 2")
        assert arrived(here, healthy) == [b"a", b"b"]

        other.start()
        until(lambda: replicas_in_sync(here, pair.topic) == 2, "it is in sync again")
        here.mirror()
        assert arrived(here, unreplicated) == [b"a", b"b"]


def test_a_target_with_a_full_disk_is_reported_and_continues_exactly_once_when_it_has_space(
    on, make_broker, source, unique_topic
):
    target = make_broker("full")
    create_topic(source.bootstrap_servers, unique_topic)
    here = on(target, unique_topic, **{"deltamirror.replay.chunk.records": "1000"})
    write(here, unique_topic, b"first")
    here.mirror()
    # A limit of 1 MB for the broker's files gives the same IOException as a full disk.
    _, hard = resource.prlimit(target.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(target.pid, resource.RLIMIT_FSIZE, (2**20, hard))
    values = [b"%d " % i + os.urandom(500) for i in range(5_000)]
    produce(source.bootstrap_servers, unique_topic, [Record(b"k", v) for v in values])

    output = run("run", "--until-caught-up", "--config", str(here.path), code=1).output
    assert "eu-west" in output
    target.kill()
    (flow,) = answer("status", "--config", str(here.path))["flows"]
    assert (flow["state"], "does not answer" in flow["error"]) == ("unreachable", True)

    target.start()
    here.mirror()
    assert arrived(here, unique_topic) == [b"first", *values]


# A quota


class Throttled:
    """A slot of a flow to one topic of a broker with a quota of 100 kB per second."""

    def __init__(self, broker, topic):
        self.broker, self.remote = broker, TopicPartition(topic, 0)
        self.source = SourcePartition("orders", "life1", 0)
        self.flow = Flow("us-east", "eu-west")

    def replay(self, records, transaction_bytes):
        """Replay *records* of 1 kB; return the result and the records."""
        contents = [RecordContent(os.urandom(1000), b"%d" % i) for i in range(records)]
        staged = FakeStageReader()
        staged.keep("file", self.source, enumerate(contents))
        topic_id = self._cluster_id()
        link = ChainLink("life1", 0, records, records)
        work = PartitionWork(self.source.topic_partition, self.remote, topic_id, (link,), None)
        bounds = (1_000_000, transaction_bytes, 1_000_000, 2**30)
        settings = {"bootstrap.servers": self.broker.bootstrap_servers}
        slot = SlotProducer(self.flow, 5, settings, settings)
        replayed = replay_slot(SlotWork(self.flow, 5, (work,), ("file",), *bounds), staged, slot)
        slot.close()
        return replayed, contents

    def _cluster_id(self):
        settings = {"bootstrap.servers": self.broker.bootstrap_servers}
        return SlotProducer(self.flow, 6, settings, settings).topic_ids([self.remote.topic])[
            self.remote.topic
        ]

    def shown(self):
        found = consume_all(self.broker.bootstrap_servers, self.remote.topic)
        return [(m.key(), m.value()) for m in found]


@pytest.fixture
def throttled(make_broker, unique_topic):
    broker = make_broker("throttled")
    create_topic(broker.bootstrap_servers, unique_topic)
    jars = os.pathsep.join(sorted(str(jar) for jar in kafka_home().glob("*.jar")))
    command = [str(java()), "-cp", jars, "kafka.admin.ConfigCommand", "--alter"]
    command += ["--bootstrap-server", broker.bootstrap_servers, "--entity-type", "clients"]
    command += ["--entity-default", "--add-config", "producer_byte_rate=100000"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return Throttled(broker, unique_topic)


def test_a_transaction_waits_for_a_quota_within_its_timeout(throttled):
    replayed, contents = throttled.replay(2_000, 2**30)

    assert (replayed.failure, replayed.errors, replayed.max_transaction_bytes) == (None, (), None)
    assert [move.records for move in replayed.batches] == [2_000]
    assert throttled.shown() == [(each.key, each.value) for each in contents]


def test_a_quota_that_makes_transactions_too_long_makes_them_smaller(throttled, monkeypatch):
    monkeypatch.setattr(producer_module, "MAX_TRANSACTION_S", 8.0)
    monkeypatch.setattr(producer_module, "TARGET_TRANSACTION_S", 2.0)

    replayed, contents = throttled.replay(3_000, 2**30)

    assert (replayed.failure, replayed.errors) == (None, ())
    (move,) = replayed.batches
    assert 0 < move.records < 3_000
    assert replayed.max_transaction_bytes < 3_000_000
    assert throttled.shown() == [(each.key, each.value) for each in contents[: move.records]]


# A frozen broker


@pytest.mark.timeout(300)
def test_a_frozen_target_stops_only_its_own_flow_and_gets_every_record_once_afterwards(
    world, make_broker, source, unique_topic
):
    frozen, other = make_broker("frozen"), "us-east->eu-north"
    create_topic(source.bootstrap_servers, unique_topic)
    here = world(
        unique_topic,
        **{
            "clusters": "us-east, eu-west, eu-north",
            "eu-north.bootstrap.servers": frozen.bootstrap_servers,
            f"{other}.enabled": "true",
            f"{other}.topics": unique_topic,
        },
    )

    def has(broker, *values):
        return _values(broker, here.remote(unique_topic)) == list(values)

    write(here, unique_topic, b"a")
    here.start()
    until(lambda: has(here.target, b"a") and has(frozen, b"a"), "both have the first record")

    frozen.freeze()
    try:
        write(here, unique_topic, b"b")
        until(lambda: has(here.target, b"a", b"b"), "the healthy target continues")
        until(lambda: _state(here, other) == "unreachable", "status reports it")
        write(here, unique_topic, b"c")
        until(lambda: has(here.target, b"a", b"b", b"c"), "it still continues")
        assert _state(here, FLOW) == "running"
    finally:
        frozen.thaw()

    until(lambda: has(frozen, b"a", b"b", b"c"), "the frozen one has them too")
    assert has(here.target, b"a", b"b", b"c")


def _values(broker, topic):
    """Return the values in *topic*, or none if it does not exist yet."""
    try:
        return [m.value() for m in consume_all(broker.bootstrap_servers, topic)]
    except KeyError:
        return []


def _state(here, name):
    flows = answer("status", "--config", str(here.path))["flows"]
    (state,) = [flow["state"] for flow in flows if flow["flow"] == name]
    return state
