"""Signs of life, on real brokers, in topics of their own names."""

import dataclasses
import threading

import pytest
from confluent_kafka.admin import AdminClient

from deltamirror.context import Site
from deltamirror.monitoring.heartbeats import Heart
from deltamirror.run.background import Upkeep, chores_of
from demo.kafka.processes import free_ports
from resources.kafka import compacted_topic
from schemas.config.config import ClusterConfig, HeartbeatConfig
from schemas.config.flow import Flow
from schemas.errors import RequestRefusedError, UnreachableError
from schemas.mm2.records import Heartbeat
from tests.support.brokers import consume_all
from tests.support.lake import config
from tests.support.world import until

pytestmark = pytest.mark.kafka

PAIR = Flow("us-east", "eu-west")


@pytest.fixture
def site(lake, source, target):
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    clusters = {
        alias: ClusterConfig(alias, at, *({"bootstrap.servers": at},) * 3)
        for alias, at in (
            ("us-east", source.bootstrap_servers),
            ("eu-west", target.bootstrap_servers),
            ("gone", nobody),
        )
    }
    site = Site(dataclasses.replace(config(lake), clusters=clusters))
    yield site
    site.close()


@pytest.fixture
def pair(names):
    return HeartbeatConfig(PAIR, names("heartbeats"), 0.05, 1)


def arrived(target, pair):
    found = consume_all(target.bootstrap_servers, pair.topic, isolation="read_uncommitted")
    return [Heartbeat.read(record.key(), record.value()) for record in found]


def test_a_heart_beats_in_a_compacted_topic_on_the_target(site, target, pair):
    heart = Heart(site, pair)

    beats = [heart.beat(), heart.beat()]

    assert arrived(target, pair) == beats
    assert {(beat.source, beat.target) for beat in beats} == {("us-east", "eu-west")}
    settings = site.cluster("eu-west").topic_configs([pair.topic])[pair.topic]
    assert settings["cleanup.policy"].value == "compact"


def test_a_topic_that_was_deleted_meanwhile_is_made_again(site, target, pair, monkeypatch):
    monkeypatch.setattr(compacted_topic, "WAIT_S", 2.0)  # how long the client keeps trying
    heart = Heart(site, pair)
    heart.beat()
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    admin.delete_topics([pair.topic])[pair.topic].result(30)

    with pytest.raises((RequestRefusedError, UnreachableError)):  # it waits for it for a while
        heart.beat()
    beat = heart.beat()

    assert arrived(target, pair) == [beat]


def test_a_cluster_that_is_down_stops_no_other_pairs_heart(site, target, pair):
    down = dataclasses.replace(pair, flow=Flow("us-east", "gone"))
    stop, done = threading.Event(), threading.Event()
    threads = [
        threading.Thread(target=Upkeep(chores, stop, done).run, daemon=True)
        for name, chores in chores_of(site, site.config.flows, [down, pair]).items()
        if name.startswith("heartbeat")
    ]
    for thread in threads:
        thread.start()

    try:
        site.cluster("eu-west").create_topic(pair.topic, 1, 1, {})
        until(lambda: len(arrived(target, pair)) >= 3, "the heart of the other pair beats")
    finally:
        stop.set()
        done.set()
