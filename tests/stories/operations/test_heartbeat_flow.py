"""Heartbeats of a flow's opposite direction come through the flow: who sees them sees it move."""

import threading

import pytest

from schemas.mm2.records import Heartbeat
from tests.support.brokers import Record, consume_all, create_topic, produce
from tests.support.world import World, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

ON = {"emit.heartbeats.enabled": "true", "heartbeats.replication.enabled": "true"}


@pytest.fixture
def here(tmp_path, make_broker):
    """A flow of the topic `orders` between clusters of its own, with MM2's default for signs."""
    world = World(tmp_path, make_broker("us-east"), make_broker("eu-west"), ["orders"], ON)
    create_topic(world.source.bootstrap_servers, "orders")
    produce(world.source.bootstrap_servers, "orders", [Record(b"k", b"v")])
    yield world
    world.end()


def pairs(broker, topic):
    """Return who is told to live in *topic*; nobody where it is not there yet."""
    try:
        found = consume_all(broker.bootstrap_servers, topic)
    except KeyError:
        return set()
    beats = [Heartbeat.read(record.key(), record.value()) for record in found]
    return {(beat.source, beat.target) for beat in beats}


def test_one_way_replication_brings_heartbeats_of_the_other_direction(here):
    there, back = ("us-east", "eu-west"), ("eu-west", "us-east")
    here.start()

    until(lambda: pairs(here.target, "us-east.heartbeats") == {back}, "the source's signs arrive")

    assert pairs(here.source, "heartbeats") == {back}
    assert pairs(here.target, "heartbeats") == {there}
    assert " WARNING " not in here.log()


def test_a_run_until_caught_up_ends_while_heartbeats_keep_coming(here):
    create_topic(here.source.bootstrap_servers, "heartbeats")
    is_over = threading.Event()

    def keep_coming():
        while not is_over.is_set():
            beat = Heartbeat("eu-west", "us-east", 1)
            produce(here.source.bootstrap_servers, "heartbeats", [Record(beat.key, beat.value)])

    thread = threading.Thread(target=keep_coming)
    thread.start()
    try:
        ended = here.cli("run", "--until-caught-up")
    finally:
        is_over.set()
        thread.join()

    assert ended.returncode == 0, ended.stderr
    assert [record.value() for record in here.arrived("orders")] == [b"v"]
