"""Changes on a source while it is mirrored: new, expanded, re-created topics, lost records."""

from __future__ import annotations

import threading
from typing import ClassVar

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from deltamirror.control import ACCEPT_GAP, ControlTable
from resources.kafka.range_reader import RangeReader
from schemas.errors.base import DeltamirrorError, NotCaughtUpError
from schemas.errors.source import TopicDeletedError, TopicRecreatedError
from schemas.kafka.partition import TopicPartition
from tests.support.brokers import Record, create_topic, high_watermarks, produce
from tests.support.fake_context import InlineWorkers
from tests.support.world import until

pytestmark = pytest.mark.kafka


def _values(here, topic):
    return [m.value() for m in here.arrived(topic)]


def _records(*values, partition=0):
    return [Record(None, value, partition=partition) for value in values]


def _admin(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def _delete(broker, topic):
    """Delete *topic* and wait until it is gone."""
    admin = _admin(broker)
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")


def _recreate(broker, topic, values):
    """Delete *topic*, create it again and write *values*."""
    _delete(broker, topic)
    create_topic(broker.bootstrap_servers, topic)
    produce(broker.bootstrap_servers, topic, _records(*values))


def _staged(here, topic):
    rows = here.context.lake.records("us-east").rows(["topic", "value"])
    return sorted(row["value"] for row in rows.to_pylist() if row["topic"] == topic)


def _tick_into(staging, partition, kind):
    """Tick until *partition* has an error of *kind*; return its message."""
    until(
        lambda: (staging.tick(), isinstance(staging.partition_errors.get(partition), kind))[1],
        f"{kind.__name__} of {partition}",
    )
    return str(staging.partition_errors[partition])


class Meanwhile(InlineWorkers):
    """Workers that call *happens* once, between a read and its commit."""

    def __init__(self, happens):
        self._happens = [happens]

    def worker_pool(self, make):
        worker_pool = super().worker_pool(make)
        run = worker_pool.run

        def run_and_more(jobs):
            answers = run(jobs)
            while self._happens:
                self._happens.pop()()
            return answers

        worker_pool.run = run_and_more
        return worker_pool


class Interrupted(RangeReader):
    """A reader that calls `happens` once, after it has read a part of the records."""

    happens: ClassVar[list] = []

    def __init__(self, settings):
        super().__init__(settings)
        # One batch at a time, so that the rest is still on the broker.
        self._settings |= {"queued.min.messages": 1, "fetch.message.max.bytes": 100}

    def read(self, ranges, max_bytes, take):
        def taken(r, batch):
            take(r, batch)
            while self.happens:
                self.happens.pop()()

        return super().read(ranges, max_bytes, taken)


@pytest.fixture
def running(world):
    """Mirror a world in the background until the test ends."""
    stop = threading.Event()
    threads = []

    def start(here):
        from deltamirror.run.supervisor import Mirror

        threads.append(threading.Thread(target=Mirror(here.config, stop=stop).run))
        threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join(30)


def _has(here, topic, count):
    """Return whether the remote topic has at least *count* offsets, markers included."""
    try:
        ends = high_watermarks(here.target.bootstrap_servers, here.remote(topic))
    except (KeyError, DeltamirrorError):
        return False
    return sum(ends.values()) >= count


def test_a_topic_created_while_running_is_mirrored_from_its_first_record(
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


@pytest.mark.parametrize(
    "new",
    [
        pytest.param([b"new 0"], id="with fewer offsets"),
        pytest.param([b"new 0", b"new 1", b"new 2"], id="with more offsets"),
    ],
)
def test_a_recreated_topic_that_was_staged_to_its_end_continues_as_a_new_incarnation(
    world, source, unique_topic, new
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"old 0", b"old 1"))
    here = world(unique_topic)
    here.mirror()
    _recreate(source, unique_topic, new)

    here.mirror()

    assert _values(here, unique_topic) == [b"old 0", b"old 1", *new]


def test_records_deleted_before_staging_stop_the_partition_with_an_error_that_names_them(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic, 2)
    produce(source.bootstrap_servers, unique_topic, _records(b"0"))
    here = world(unique_topic)
    here.mirror()
    produce(source.bootstrap_servers, unique_topic, _records(b"1", b"2", b"3"))
    produce(source.bootstrap_servers, unique_topic, _records(b"well", partition=1))
    admin = _admin(source)
    deleted = admin.delete_records([KafkaPartition(unique_topic, 0, 3)])
    [future.result(30) for future in deleted.values()]

    with pytest.raises(NotCaughtUpError, match=r"\[1, 3\) expired"):
        here.mirror()
    assert _values(here, unique_topic) == [b"0", b"well"]

    ControlTable(here.context.lake.control).add_request(ACCEPT_GAP, "us-east", unique_topic)
    here.mirror()
    assert _values(here, unique_topic) == [b"0", b"3", b"well"]
    causes = here.context.lake.segments("us-east").rows(["gap_cause"]).column(0).to_pylist()
    assert "expired, accepted" in causes


def test_a_recreated_topic_that_was_not_staged_to_its_end_stops_the_partition(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"0", b"1", b"2"))
    here = world(unique_topic, **{"deltamirror.stage.max.records": "1"})
    with here.staging() as staging:
        staging.tick()
    _recreate(source, unique_topic, [b"new"])

    with pytest.raises(NotCaughtUpError, match=r"\[1, 3\) of its former incarnation"):
        here.mirror()

    ControlTable(here.context.lake.control).add_request(ACCEPT_GAP, "us-east", unique_topic)
    here.mirror()
    assert _values(here, unique_topic) == [b"0", b"new"]


def test_a_recreated_topic_with_more_offsets_is_not_read_from_the_previous_frontier(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"old 0", b"old 1"))
    here = world(unique_topic, **{"refresh.topics.interval.seconds": "600"})
    with here.staging() as staging:
        staging.tick()
        _recreate(source, unique_topic, [b"new 0", b"new 1", b"new 2"])

        until(lambda: staging.tick().segments != (), "the new incarnation is staged")

        assert _staged(here, unique_topic) == [b"new 0", b"new 1", b"new 2", b"old 0", b"old 1"]
        assert staging.partition_errors == {}


@pytest.mark.parametrize("count", [1, 9], ids=["with fewer offsets", "with more offsets"])
def test_a_topic_recreated_between_plan_and_commit_is_not_mixed_with_its_previous_incarnation(
    world, source, unique_topic, count
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"0", b"1", b"2"))
    here = world(unique_topic)
    new = [b"new %d" % n for n in range(count)]
    remake = Meanwhile(lambda: _recreate(source, unique_topic, new))
    with here.staging(remake) as staging:
        message = _tick_into(staging, TopicPartition(unique_topic, 0), TopicRecreatedError)
        assert "[0, 3) of its former incarnation" in message
        assert _staged(here, unique_topic) == []

        ControlTable(here.context.lake.control).add_request(ACCEPT_GAP, "us-east", unique_topic)
        staging.tick()

        assert _staged(here, unique_topic) == new


@pytest.mark.story
@pytest.mark.parametrize("count", [3, 300], ids=["with fewer offsets", "with more offsets"])
def test_a_topic_recreated_during_a_read_is_not_mixed_with_its_previous_incarnation(
    world, source, unique_topic, names, monkeypatch, count
):
    other = names("other")
    for topic in (unique_topic, other):
        create_topic(source.bootstrap_servers, topic)
    for n in range(10):
        old = _records(*(b"old %d %d" % (n, i) for i in range(10)))
        produce(source.bootstrap_servers, unique_topic, old)
    new = [b"new %d" % n for n in range(count)]
    monkeypatch.setattr(Interrupted, "happens", [lambda: _recreate(source, unique_topic, new)])
    monkeypatch.setattr("deltamirror.worker_tasks.RangeReader", Interrupted)
    here = world(unique_topic, other)
    with here.staging() as staging:
        message = _tick_into(staging, TopicPartition(unique_topic, 0), TopicRecreatedError)
        assert "[0, 100) of its former incarnation" in message
        produce(source.bootstrap_servers, other, _records(b"well"))
        staging.tick()
        assert _staged(here, other) == [b"well"]
        assert _staged(here, unique_topic) == []

        ControlTable(here.context.lake.control).add_request(ACCEPT_GAP, "us-east", unique_topic)
        staging.tick()
    here.mirror()

    assert _values(here, unique_topic) == new


def test_a_topic_deleted_before_staging_is_reported_with_its_interval_until_the_gap_is_accepted(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, _records(b"0", b"1", b"2"))
    here = world(unique_topic)
    with here.staging(Meanwhile(lambda: _delete(source, unique_topic))) as staging:
        message = _tick_into(staging, TopicPartition(unique_topic, 0), TopicDeletedError)
        assert "[0, 3) were not staged" in message

        ControlTable(here.context.lake.control).add_request(ACCEPT_GAP, "us-east", unique_topic)
        staging.tick()
        staging.tick()

        assert staging.partition_errors == {}


def test_aborted_records_and_markers_do_not_keep_lag_above_zero(world, source, unique_topic, names):
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
