"""What a source does meanwhile: new topics, more partitions, other lives, lost records."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from assets.orders import ACCEPT_GAP, Orders
from schemas.errors import DeltamirrorError, NotCaughtUpError
from tests.brokers import Record, create_topic, high_watermarks, produce
from tests.stories.world import until

pytestmark = pytest.mark.kafka


def _values(here, topic):
    return [m.value() for m in here.arrived(topic)]


def _records(*values, partition=0):
    return [Record(None, value, partition=partition) for value in values]


def _admin(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def _delete(broker, topic):
    """Delete *topic* and return when it is gone."""
    admin = _admin(broker)
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")


@pytest.fixture
def running(world):
    """Mirror a world in the background until the story ends."""
    stop = threading.Event()
    threads = []

    def start(here):
        from assets.mirror import mirror

        threads.append(threading.Thread(target=mirror, args=(here.config,), kwargs={"stop": stop}))
        threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join(30)


def _has(here, topic, count):
    """Return whether the remote topic holds *count* records, markers not counted, or more."""
    try:
        ends = high_watermarks(here.target.bootstrap_servers, here.remote(topic))
    except (KeyError, DeltamirrorError):
        return False
    return sum(ends.values()) >= count


def test_a_topic_made_while_running_is_mirrored_from_its_first_record(
    world, running, source, unique_topic
):
    here = world(unique_topic)
    running(here)
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"a", b"b"))

    until(lambda: _has(here, unique_topic, 2), "the new topic arrives")

    assert _values(here, unique_topic) == [b"a", b"b"]


def test_partitions_added_while_running_are_mirrored_from_their_first_record(
    world, running, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"a"))
    here = world(unique_topic)
    running(here)
    until(lambda: _has(here, unique_topic, 1), "the first partition arrives")

    admin = _admin(source)
    admin.create_partitions([NewPartitions(unique_topic, 3)])[unique_topic].result(30)
    until(lambda: len(high_watermarks(source.bootstrap_servers, unique_topic)) == 3, "three")
    produce(source.bootstrap_servers, unique_topic, _records(b"c", partition=2))

    until(lambda: _has(here, unique_topic, 4), "the new partition arrives")
    assert _values(here, unique_topic) == [b"a", b"c"]


def test_a_topic_staged_to_its_end_and_made_anew_goes_on_as_a_new_incarnation(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"old 0", b"old 1"))
    here = world(unique_topic)
    here.mirror()
    _delete(source, unique_topic)
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"new 0", b"new 1", b"new 2"))

    here.mirror()

    assert _values(here, unique_topic) == [b"old 0", b"old 1", b"new 0", b"new 1", b"new 2"]


def test_records_deleted_before_they_were_staged_stop_the_partition_with_their_interval(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic, 2)
    produce(source.bootstrap_servers, unique_topic, _records(b"0"))
    here = world(unique_topic)
    here.mirror()
    produce(source.bootstrap_servers, unique_topic, _records(b"1", b"2", b"3"))
    produce(source.bootstrap_servers, unique_topic, _records(b"well", partition=1))
    admin = _admin(source)
    deleted = admin.delete_records([TopicPartition(unique_topic, 0, 3)])
    [future.result(30) for future in deleted.values()]

    with pytest.raises(NotCaughtUpError, match=r"\[1, 3\) expired"):
        here.mirror()
    assert _values(here, unique_topic) == [b"0", b"well"]

    Orders(here.site.lake.control).give(ACCEPT_GAP, "us-east", unique_topic)
    here.mirror()
    assert _values(here, unique_topic) == [b"0", b"3", b"well"]
    causes = here.site.lake.segments("us-east").rows(["gap_cause"]).column(0).to_pylist()
    assert "expired, accepted" in causes


def test_a_former_life_that_was_not_staged_to_its_end_stops_the_partition(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"0", b"1", b"2"))
    here = world(unique_topic)
    _stage_only(here, records=1)
    _delete(source, unique_topic)
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"new"))

    with pytest.raises(NotCaughtUpError, match=r"\[1, 3\) of its former life"):
        here.mirror()

    Orders(here.site.lake.control).give(ACCEPT_GAP, "us-east", unique_topic)
    here.mirror()
    assert _values(here, unique_topic) == [b"0", b"new"]


def _stage_only(here, records):
    """Stage one batch of *records* at most, and replay nothing."""
    from dataclasses import replace

    from assets.site import Site
    from assets.staging import Staging
    from resources.spark import Workers

    staging = Staging(Site(replace(here.config, max_batch_records=records)), "us-east", Workers(2))
    staging.open()
    staging.tick()
    staging.close()


def test_aborted_records_and_markers_are_no_records_and_lag_reaches_zero(
    world, source, unique_topic, names
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"kept"), transactional_id=names("t"))
    produce(
        source.bootstrap_servers,
        unique_topic,
        _records(b"aborted"),
        transactional_id=names("t"),
        commit=False,
    )
    here = world(unique_topic)

    here.mirror()

    assert _values(here, unique_topic) == [b"kept"]
    [flow] = here.answer("status")["flows"]
    [partition] = flow["partitions"]
    assert (partition["source_end"], partition["replayed"], partition["lag"]) == (4, 4, 0)
