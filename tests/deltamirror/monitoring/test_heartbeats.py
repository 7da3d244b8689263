"""Heartbeats on real brokers, in topics with names of their own."""

import dataclasses
import threading

import pytest
from confluent_kafka.admin import AdminClient

from deltamirror.context import MirrorContext
from deltamirror.monitoring.heartbeats import HeartbeatEmitter
from deltamirror.run.background import PeriodicRunner, periodic_tasks
from demo.kafka.processes import free_ports
from resources.kafka import compacted_topic
from schemas.config.config import ClusterConfig, HeartbeatConfig
from schemas.config.flow import Flow
from schemas.errors.base import RequestRefusedError
from schemas.errors.environment import UnreachableError
from schemas.mm2.records import Heartbeat
from tests.support.brokers import consume_all
from tests.support.lake import config
from tests.support.world import until

pytestmark = pytest.mark.kafka

PAIR = Flow("us-east", "eu-west")


@pytest.fixture
def context(lake, source, target):
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    clusters = {
        alias: ClusterConfig(alias, at, *({"bootstrap.servers": at},) * 3)
        for alias, at in (
            ("us-east", source.bootstrap_servers),
            ("eu-west", target.bootstrap_servers),
            ("gone", nobody),
        )
    }
    context = MirrorContext(dataclasses.replace(config(lake), clusters=clusters))
    yield context
    context.close()


@pytest.fixture
def pair(names):
    return HeartbeatConfig(PAIR, names("heartbeats"), 0.05, 1)


def arrived(target, pair):
    found = consume_all(target.bootstrap_servers, pair.topic, isolation="read_uncommitted")
    return [Heartbeat.read(record.key(), record.value()) for record in found]


def test_heartbeats_are_written_to_a_compacted_topic_on_the_target(context, target, pair):
    heart = HeartbeatEmitter(context, pair)

    beats = [heart.emit(), heart.emit()]

    assert arrived(target, pair) == beats
    assert {(emit.source, emit.target) for emit in beats} == {("us-east", "eu-west")}
    settings = context.cluster("eu-west").topic_configs([pair.topic])[pair.topic]
    assert settings["cleanup.policy"].value == "compact"


def test_a_deleted_heartbeats_topic_is_created_again(context, target, pair, monkeypatch):
    monkeypatch.setattr(compacted_topic, "REQUEST_TIMEOUT_S", 2.0)  # how long the client retries
    heart = HeartbeatEmitter(context, pair)
    heart.emit()
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    admin.delete_topics([pair.topic])[pair.topic].result(30)

    with pytest.raises(
        (RequestRefusedError, UnreachableError)
    ):  # the client waits for the topic first
        heart.emit()
    emit = heart.emit()

    assert arrived(target, pair) == [emit]


def test_a_cluster_that_is_down_does_not_stop_heartbeats_of_other_pairs(context, target, pair):
    down = dataclasses.replace(pair, flow=Flow("us-east", "gone"))
    stop, done = threading.Event(), threading.Event()
    threads = [
        threading.Thread(target=PeriodicRunner(chores, stop, done).run, daemon=True)
        for name, chores in periodic_tasks(context, context.config.flows, [down, pair]).items()
        if name.startswith("heartbeat")
    ]
    for thread in threads:
        thread.start()

    try:
        context.cluster("eu-west").create_topic(pair.topic, 1, 1, {})
        until(lambda: len(arrived(target, pair)) >= 3, "the heart of the other pair beats")
    finally:
        stop.set()
        done.set()
