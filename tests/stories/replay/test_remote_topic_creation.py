"""Remote topics that exist already or cannot be created. One mirror runs for all tests."""

from uuid import uuid4

import pytest

from schemas.errors.base import NotCaughtUpError
from tests.support.brokers import Record, create_topic, delete_topic, produce
from tests.support.world import World, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

MARK = uuid4().hex
PLAIN, NARROW, WIDE, TWIN = (f"{word}-{MARK}" for word in ("plain", "narrow", "wide", "twin"))
TOO_LONG = f"long-{MARK}".ljust(245, "x")
PARTITIONS = {PLAIN: 2, NARROW: 3, WIDE: 2, TWIN: 1, TOO_LONG: 1}


@pytest.fixture(scope="module")
def mirrored(clusters, tmp_path_factory):
    """Yield a mirrored world, and the message of the error with which its run ended."""
    source, target = (broker.start() for broker in clusters)
    for name, partitions in PARTITIONS.items():
        create_topic(source.bootstrap_servers, name, partitions)
        records = [Record(b"k", b"%d" % i, partition=i) for i in range(partitions)]
        produce(source.bootstrap_servers, name, records)
    create_topic(target.bootstrap_servers, f"us-east.{NARROW}", 1)
    create_topic(target.bootstrap_servers, f"us-east.{WIDE}", 4)
    # Kafka treats `.` and `_` in topic names as equal, because metrics use these names.
    create_topic(target.bootstrap_servers, f"us-east_{TWIN}", 1)
    extra = {"replication.factor": "-1"}
    world = World(tmp_path_factory.mktemp("world"), source, target, list(PARTITIONS), extra)
    with pytest.raises(NotCaughtUpError) as raised:
        world.mirror()
    yield world, str(raised.value)
    world.end()


def arrived(world, topic):
    return [(m.partition(), m.value()) for m in world.arrived(topic)]


def partitions(world, topic):
    return (
        world.context.cluster("eu-west").topics([f"us-east.{topic}"])[f"us-east.{topic}"].partitions
    )


def test_a_replication_factor_of_minus_1_is_left_to_the_target(mirrored):
    world, _ = mirrored

    assert arrived(world, PLAIN) == [(0, b"0"), (1, b"1")]


def test_an_existing_topic_gets_more_partitions_and_each_record_is_in_its_partition(mirrored):
    world, _ = mirrored

    assert partitions(world, NARROW) == 3
    assert arrived(world, NARROW) == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_an_existing_topic_with_more_partitions_keeps_them(mirrored):
    world, _ = mirrored

    assert partitions(world, WIDE) == 4
    assert arrived(world, WIDE) == [(0, b"0"), (1, b"1")]


def test_topics_that_cannot_be_created_are_reported_and_do_not_stop_others(mirrored):
    world, message = mirrored

    (flow,) = world.answer("status")["flows"]
    errors = {p["topic"]: p["error"] for p in flow["partitions"] if p["error"]}
    assert errors.keys() == {TWIN, TOO_LONG}
    assert "its name has 253 characters, Kafka allows 249" in errors[TOO_LONG]
    assert f"us-east_{TWIN}" in errors[TWIN]
    assert any(error in message for error in errors.values())


def test_a_topic_that_could_not_be_created_arrives_after_the_cause_is_removed(mirrored):
    world, _ = mirrored
    eu_west = world.context.cluster("eu-west")
    delete_topic(world.target.bootstrap_servers, f"us-east_{TWIN}")
    until(lambda: f"us-east_{TWIN}" not in eu_west.topics(), "the twin is gone")

    with pytest.raises(NotCaughtUpError, match="253 characters"):
        world.mirror()

    assert arrived(world, TWIN) == [(0, b"0")]
