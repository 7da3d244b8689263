"""Planned ranges are read exactly from a real broker, or end with an error that has the cause."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resources.kafka import range_reader as reader_module
from resources.kafka.cluster import KafkaCluster
from resources.kafka.range_reader import RangeReader
from schemas.errors.source import LogTruncatedError, RangeUnfinishedError, RecordsExpiredError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.staging.read_range import OffsetRange
from tests.support.brokers import Record, consume_all, create_topic, high_watermarks, produce
from tests.support.fake_cluster import RecordContent, contents_of
from tests.support.unclean_leader import elect_again

pytestmark = pytest.mark.kafka

MANY = 2**40
PARTITIONS, WORDS = 5, 600


class ReaderHarness:
    """A broker's topics, their watermarks, and the results of a reader."""

    def __init__(self, broker):
        self.bootstrap = broker.bootstrap_servers
        self.settings = {"bootstrap.servers": self.bootstrap}
        self.cluster = KafkaCluster("us-east", self.settings)
        self.reader = RangeReader(self.settings)
        self.found = {}

    def marks(self, topic, partition=0):
        plain = TopicPartition(topic, partition)
        return self.cluster.watermarks([plain])[plain]

    def range(self, topic, start=0, end=None, *, partition=0, epoch=None, marks=None):
        marks = marks or self.marks(topic, partition)
        source = SourcePartition(topic, "life1", partition)
        return OffsetRange(source, start, marks.stable if end is None else end, 0, epoch, marks)

    def read(self, *ranges, max_bytes=MANY):
        """Read *ranges*; return their results. `found` has the records by range."""
        self.found = {r: [] for r in ranges}
        reached = self.reader.read(ranges, max_bytes, lambda r, b: self.found[r].append(b))
        assert set(reached) == set(ranges)
        return [reached[r] for r in ranges]

    def offsets(self, r):
        return [o for batch in self.found[r] for o in batch.column("offset").to_pylist()]

    def contents(self, r):
        return [s for batch in self.found[r] for s in contents_of(batch)]

    def delete_before(self, topic, offset):
        admin = AdminClient(self.settings)
        partition = KafkaPartition(topic, 0, offset)
        for future in admin.delete_records([partition]).values():
            future.result(10)


@pytest.fixture
def harness(source):
    made = ReaderHarness(source)
    yield made
    made.reader.close()


@pytest.fixture
def topic(harness, unique_topic):
    create_topic(harness.bootstrap, unique_topic)
    return unique_topic


def values(count, size=1):
    return [Record(b"k%d" % i, b"v" * size, timestamp=1_000 + i) for i in range(count)]


def test_a_range_is_read_to_its_end_and_no_further(harness, topic):
    produce(harness.bootstrap, topic, values(10))
    wanted = harness.range(topic, 2, 7)

    (reached,) = harness.read(wanted)

    assert (reached.end, reached.error) == (7, None)
    assert harness.offsets(wanted) == [2, 3, 4, 5, 6]


def test_every_field_of_a_record_is_read_unchanged(harness, topic):
    odd = [
        Record(None, None),
        Record(b"", b""),
        Record(b"\0\xff", b"\xfe", [("a", b"1"), ("b", b""), ("a", b"1"), ("", None)], 5),
        Record(b"k", b"v", [("\u00e9", b"x")], -1),
        Record(b"k", b"v", [], 9_300_000_000_000_000),
    ]
    stamped = [r._replace(timestamp=r.timestamp or 7) for r in odd]
    produce(harness.bootstrap, topic, stamped)
    wanted = harness.range(topic)

    harness.read(wanted)

    assert harness.contents(wanted) == [
        RecordContent(r.value, r.key, tuple(r.headers), r.timestamp) for r in stamped
    ]
    (batch,) = harness.found[wanted]
    assert set(batch.column("timestamp_type").to_pylist()) == {1}
    assert set(batch.column("leader_epoch").to_pylist()) == {0}
    assert set(batch.column("topic_id").to_pylist()) == {"life1"}


def test_timestamps_that_the_broker_sets_are_marked(harness, unique_topic):
    create_topic(harness.bootstrap, unique_topic, message_timestamp_type="LogAppendTime")
    produce(harness.bootstrap, unique_topic, values(1))
    wanted = harness.range(unique_topic)

    harness.read(wanted)

    assert harness.found[wanted][0].column("timestamp_type").to_pylist() == [2]


def test_a_range_with_markers_and_aborted_records_at_its_end_is_read_to_its_end(
    harness, topic, names
):
    produce(harness.bootstrap, topic, values(3), transactional_id=names("tx"))
    produce(harness.bootstrap, topic, values(2), transactional_id=names("tx"), commit=False)
    consume_all(harness.bootstrap, topic)  # returns when the markers are there
    wanted = harness.range(topic)

    (reached,) = harness.read(wanted)

    assert wanted.end == 7
    assert (reached.end, reached.error) == (7, None)
    assert harness.offsets(wanted) == [0, 1, 2]


def test_aborted_records_between_others_are_a_gap(harness, topic, names):
    produce(harness.bootstrap, topic, values(2))
    produce(harness.bootstrap, topic, values(2), transactional_id=names("tx"), commit=False)
    produce(harness.bootstrap, topic, values(1))
    consume_all(harness.bootstrap, topic)
    wanted = harness.range(topic)

    (reached,) = harness.read(wanted)

    assert reached.end == 6
    assert harness.offsets(wanted) == [0, 1, 5]


def test_a_range_that_begins_on_a_marker_is_read(harness, topic, names):
    produce(harness.bootstrap, topic, values(2), transactional_id=names("tx"))
    consume_all(harness.bootstrap, topic)

    (reached,) = harness.read(harness.range(topic, 2))

    assert (reached.end, reached.error) == (3, None)


def test_records_of_an_open_transaction_after_the_range_are_not_returned(harness, topic, names):
    produce(harness.bootstrap, topic, values(2))
    held = Producer({**harness.settings, "transactional.id": names("tx")})
    held.init_transactions(10)
    held.begin_transaction()
    held.produce(topic, b"open", partition=0)
    held.flush(10)
    wanted = harness.range(topic)

    (reached,) = harness.read(wanted)

    held.abort_transaction(10)
    assert (wanted.end, wanted.watermarks.high) == (2, 3)
    assert (reached.end, reached.error) == (2, None)


def test_a_range_above_the_last_stable_offset_raises_an_error_in_time(
    harness, topic, names, monkeypatch
):
    monkeypatch.setattr(reader_module, "READ_TIMEOUT_S", 1.0)
    held = Producer({**harness.settings, "transactional.id": names("tx")})
    held.init_transactions(10)
    held.begin_transaction()
    held.produce(topic, b"open", partition=0)
    held.flush(10)

    (reached,) = harness.read(harness.range(topic, 0, 1))

    held.abort_transaction(10)
    assert reached.end == 0
    assert isinstance(reached.error, RangeUnfinishedError)


def test_a_start_below_the_log_start_is_reported_as_expiry_with_its_interval(harness, topic):
    produce(harness.bootstrap, topic, values(10))
    harness.delete_before(topic, 6)

    (reached,) = harness.read(harness.range(topic, 2))

    assert reached.end == 2
    assert isinstance(reached.error, RecordsExpiredError)
    assert "[2, 6) expired" in str(reached.error)


def test_records_that_expire_between_plan_and_read_are_not_reported_as_truncation(harness, topic):
    produce(harness.bootstrap, topic, values(10))
    planned = harness.range(topic, 2)
    harness.delete_before(topic, 6)

    (reached,) = harness.read(planned)

    assert isinstance(reached.error, RecordsExpiredError)
    assert "[2, 6) expired" in str(reached.error)


def test_a_start_beyond_the_end_is_reported_as_truncation_with_both_offsets(harness, topic):
    produce(harness.bootstrap, topic, values(4))
    marks = harness.marks(topic)

    (reached,) = harness.read(harness.range(topic, 9, 12, marks=marks))

    assert reached.end == 9
    assert isinstance(reached.error, LogTruncatedError)
    assert "staged up to 9" in str(reached.error)
    assert "ends at 4" in str(reached.error)


def test_a_failed_range_does_not_stop_the_others(harness, topic, names):
    other = names("other")
    create_topic(harness.bootstrap, other)
    produce(harness.bootstrap, topic, values(4))
    produce(harness.bootstrap, other, values(4))
    harness.delete_before(topic, 3)
    expired, healthy = harness.range(topic, 0), harness.range(other)

    first, second = harness.read(expired, healthy)

    assert isinstance(first.error, RecordsExpiredError)
    assert (second.end, second.error) == (4, None)
    assert harness.offsets(healthy) == [0, 1, 2, 3]


def test_after_an_error_the_next_read_works(harness, topic):
    produce(harness.bootstrap, topic, values(4))
    harness.read(harness.range(topic, 9, 12))

    (reached,) = harness.read(harness.range(topic))

    assert (reached.end, reached.error) == (4, None)


def test_a_read_ends_at_a_record_boundary_at_its_size_limit_and_the_next_continues_there(
    harness, topic
):
    produce(harness.bootstrap, topic, values(40, size=900_000))
    whole = harness.range(topic)
    at, offsets, reads = 0, [], 0
    while at < whole.end:
        part = harness.range(topic, at, marks=whole.watermarks)
        (reached,) = harness.read(part, max_bytes=8_000_000)
        assert reached.error is None
        assert reached.end > at
        offsets += harness.offsets(part)
        at, reads = reached.end, reads + 1

    assert offsets == list(range(40))
    assert reads > 1
    assert all(len(s.value) == 900_000 for s in harness.contents(part))


def test_many_small_partitions_are_read_in_one_read(harness, unique_topic):
    create_topic(harness.bootstrap, unique_topic, partitions=60)
    produce(
        harness.bootstrap,
        unique_topic,
        (r._replace(partition=p) for p in range(60) for r in values(5)),
    )
    every = harness.cluster.watermarks([TopicPartition(unique_topic, p) for p in range(60)])
    ranges = [
        harness.range(unique_topic, partition=p.partition, marks=marks)
        for p, marks in every.items()
    ]

    reached = harness.read(*ranges)

    assert all((r.end, r.error) == (5, None) for r in reached)
    assert all(harness.offsets(r) == [0, 1, 2, 3, 4] for r in ranges)


def test_a_backlog_after_a_small_range_does_not_delay_the_others(harness, unique_topic):
    create_topic(harness.bootstrap, unique_topic, partitions=4)
    produce(
        harness.bootstrap,
        unique_topic,
        (r._replace(partition=p) for p in range(4) for r in values(20_000, 100)),
    )
    ranges = [harness.range(unique_topic, 0, 10 ** (p + 1), partition=p) for p in range(4)]

    reached = harness.read(*ranges)

    assert [(r.end, r.error) for r in reached] == [(10 ** (p + 1), None) for p in range(4)]


def test_a_broker_that_stops_answering_ends_the_read_in_time(make_broker, names, monkeypatch):
    monkeypatch.setattr(reader_module, "READ_TIMEOUT_S", 1.0)
    # Not shared: after a freeze a broker may be down for a while.
    source, topic = make_broker("silent"), names()
    harness = ReaderHarness(source)
    create_topic(harness.bootstrap, topic)
    produce(harness.bootstrap, topic, values(4))
    wanted = harness.range(topic)
    source.freeze()
    try:
        (reached,) = harness.read(wanted)
    finally:
        source.thaw()

    assert isinstance(reached.error, RangeUnfinishedError)
    assert reached.end == 0
    assert harness.read(wanted)[0].error is None


def test_compacted_offsets_are_a_gap(make_broker, names):
    harness = ReaderHarness(make_broker("compacting", properties={"log.cleaner.backoff.ms": "100"}))
    topic = names()
    create_topic(
        harness.bootstrap,
        topic,
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.001,
    )
    same = [Record(b"same", b"%d" % i) for i in range(5)]
    give_up_at, added = time.monotonic() + 30, 0
    while not added or len(consume_all(harness.bootstrap, topic)) == added:
        assert time.monotonic() < give_up_at
        produce(harness.bootstrap, topic, same)  # a segment is closed by the next record
        added += len(same)
        time.sleep(0.2)
    wanted = harness.range(topic)

    (reached,) = harness.read(wanted)

    harness.reader.close()
    offsets = harness.offsets(wanted)
    assert (reached.end, reached.error) == (added, None)
    assert 0 < len(offsets) < added
    assert offsets == sorted(offsets)


def test_a_truncated_log_that_has_grown_past_the_start_is_detected_by_its_leader_epoch(
    make_broker, names
):
    broker = make_broker("unclean")
    harness, topic = ReaderHarness(broker), names()
    create_topic(harness.bootstrap, topic)
    for record in values(10):
        produce(harness.bootstrap, topic, [record])
    staged = harness.marks(topic)
    broker.stop()
    _cut_log(broker.home, topic, kept=4)
    broker.start()
    elect_again(broker, TopicPartition(topic, 0), staged.leader_epoch)
    produce(harness.bootstrap, topic, values(20))
    assert high_watermarks(harness.bootstrap, topic) == {0: 24}

    cut = _read_in_the_end(harness, harness.range(topic, 10, 24, epoch=staged.leader_epoch))
    fresh = _read_in_the_end(harness, harness.range(topic, 0, 24))

    harness.reader.close()
    assert isinstance(cut.error, LogTruncatedError)
    assert cut.end == 10
    assert (fresh.end, fresh.error) == (24, None)


def _read_in_the_end(harness, r):
    """Read *r*; retry, as the loop does, while a restarted broker does not answer."""
    for _ in range(3):
        (reached,) = harness.read(r)
        if not isinstance(reached.error, RangeUnfinishedError):
            break
    return reached


def _cut_log(home: Path, topic: str, kept: int) -> None:
    """Keep only the first *kept* records of a stopped broker's partition; each is one batch."""
    folder = next(home.rglob(f"{topic}-0"))
    log = folder / f"{0:020}.log"
    content, at = log.read_bytes(), 0
    for _ in range(kept):
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    log.write_bytes(content[:at])
    for other in folder.iterdir():
        if other.suffix in (".index", ".timeindex", ".snapshot"):
            other.unlink()
    (home / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for checkpoint in home.rglob("*-offset-checkpoint"):
        checkpoint.unlink()


def _words(partition):
    return [b"%d of partition %d" % (n, partition) for n in range(WORDS)]


@pytest.fixture
def topic_of_words(harness, unique_topic):
    """A topic of several partitions; each record's value has its offset and its partition."""
    create_topic(harness.bootstrap, unique_topic, PARTITIONS)
    written = [Record(None, word, (), None, p) for p in range(PARTITIONS) for word in _words(p)]
    produce(harness.bootstrap, unique_topic, written)
    return unique_topic


def _read_is_exact(harness, topic, starts, ends):
    ranges = [
        harness.range(topic, start, end, partition=p)
        for p, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    assert [reached.error for reached in harness.read(*ranges)] == [None] * len(ranges)
    for r in ranges:
        words = _words(r.partition.partition)[r.start : r.end]
        assert [content.value for content in harness.contents(r)] == words


def test_records_after_the_end_of_a_range_are_never_returned_for_another_range(
    harness, topic_of_words
):
    # All ranges except the last end long before their logs, so their partitions keep sending.
    _read_is_exact(harness, topic_of_words, [0] * PARTITIONS, [10] * (PARTITIONS - 1) + [WORDS])
    _read_is_exact(harness, topic_of_words, [10] * PARTITIONS, [20] * PARTITIONS)


@given(data=st.data())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_ranges_of_one_topic_with_any_bounds_return_their_own_records(
    harness, topic_of_words, data
):
    ends = data.draw(st.lists(st.integers(0, WORDS), min_size=PARTITIONS, max_size=PARTITIONS))
    starts = [data.draw(st.integers(0, end)) for end in ends]
    _read_is_exact(harness, topic_of_words, starts, ends)
