"""A run is killed with `kill -9` or stopped with SIGTERM, and a second run continues."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka import KafkaException

from tests.support.brokers import Record, create_topic, high_watermarks, produce
from tests.support.world import contents, kill, until

pytestmark = pytest.mark.kafka

RECORDS = 300_000
PARTITIONS = 4
SMALL_CHUNKS = {"deltamirror.replay.chunk.records": "5000"}


def _fill(bootstrap, topic):
    create_topic(bootstrap, topic, PARTITIONS)
    produce(
        bootstrap,
        topic,
        (Record(b"%d" % i, b"x" * 100, partition=i % PARTITIONS) for i in range(RECORDS)),
    )


def _arrived(here, topic):
    """Return the end of the target's log, 0 if the topic does not exist or has no leader yet."""
    try:
        return sum(high_watermarks(here.target.bootstrap_servers, here.remote(topic)).values())
    except (KeyError, KafkaException):
        return 0


@pytest.mark.timeout(300)
def test_a_run_killed_in_the_middle_of_300_000_records_neither_loses_nor_duplicates_any(
    world, source, unique_topic
):
    _fill(source.bootstrap_servers, unique_topic)
    here = world(unique_topic, **SMALL_CHUNKS)
    run = here.start("--until-caught-up")
    until(lambda: _arrived(here, unique_topic) > 20_000, "20,000 records arrive")
    kill(run)
    assert _arrived(here, unique_topic) < RECORDS, "the run was killed after its end"

    here.mirror()

    arrived = here.arrived(unique_topic)
    for partition in range(PARTITIONS):
        keys = [m.key() for m in arrived if m.partition() == partition]
        assert keys == [b"%d" % i for i in range(partition, RECORDS, PARTITIONS)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_run_ends_within_10_s_of_a_stop_signal_and_the_next_run_continues(
    world, source, unique_topic, how
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, [Record(b"1", b"before")])
    here = world(unique_topic)
    run = here.start()
    until(lambda: _arrived(here, unique_topic) > 0, "the first record arrives")

    run.send_signal(how)

    assert run.wait(10) == 0, here.log()
    produce(source.bootstrap_servers, unique_topic, [Record(b"2", b"after")])
    here.mirror()
    assert [m.key() for m in here.arrived(unique_topic)] == [b"1", b"2"]


def test_a_second_run_copies_nothing_twice(world, source, unique_topic):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, [Record(b"1", b"v")])
    here = world(unique_topic)

    here.mirror()
    here.mirror()

    assert len(contents(here.arrived(unique_topic))) == 1
