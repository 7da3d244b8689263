"""The contract of a cluster with replay and staging, for the fake cluster and for real brokers."""

import pytest

from resources.kafka.cluster import KafkaCluster
from resources.kafka.range_reader import RangeReader
from resources.kafka.slot_producer import SlotProducer
from schemas.config.flow import Flow
from schemas.errors.source import LogTruncatedError
from schemas.errors.target import FencedError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import Progress
from schemas.staging.read_range import OffsetRange
from tests.support.brokers import Record, consume_all, create_topic, produce
from tests.support.fake_cluster import (
    FakeCluster,
    FakeSource,
    FakeTarget,
    RecordContent,
    contents_of,
    rows,
)

STAGED = SourcePartition("orders", "life1", 0)


class FakeClusterCase:
    """The fake cluster."""

    def __init__(self, names):
        self.cluster = FakeCluster()
        self._flow = Flow(names("east"), "eu-west")
        self.partition = TopicPartition(names(), 0)
        self.cluster.make(self.partition.topic)

    def writer(self, slot=0):
        return FakeTarget(self.cluster, self._flow, slot)

    def reader(self):
        return FakeSource(self.cluster)

    def foreign(self, *contents):
        self.cluster.append(self.partition, *contents)

    def shown(self):
        return self.cluster.visible(self.partition)


class RealBrokerCase:
    """A real broker."""

    def __init__(self, broker, names):
        self._bootstrap = broker.bootstrap_servers
        self._settings = {"bootstrap.servers": self._bootstrap}
        self._flow = Flow(names("east"), "eu-west")
        self.cluster = KafkaCluster("eu-west", self._settings)
        self.partition = TopicPartition(names(), 0)
        create_topic(self._bootstrap, self.partition.topic)

    def writer(self, slot=0):
        return SlotProducer(self._flow, slot, self._settings, self._settings)

    def reader(self):
        return RangeReader(self._settings)

    def foreign(self, *contents):
        records = [Record(s.key, s.value, list(s.headers), s.timestamp_ms) for s in contents]
        produce(self._bootstrap, self.partition.topic, records)

    def shown(self):
        return [
            (
                m.offset(),
                RecordContent(m.value(), m.key(), tuple(m.headers() or ()), m.timestamp()[1]),
            )
            for m in consume_all(self._bootstrap, self.partition.topic)
        ]


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.kafka)])
def case(request, names):
    if request.param == "fake":
        return FakeClusterCase(names)
    return RealBrokerCase(request.getfixturevalue("target"), names)


def batch(*values, start=0):
    return rows(STAGED, [(i, RecordContent(value)) for i, value in enumerate(values, start)])


def at(next_offset):
    return Progress(next_offset, "life1", "target-life")


def transact(case, writer, *values, next_offset=None):
    """Send *values* in a transaction of *writer*, which was fenced; return their offsets."""
    writer.begin()
    writer.send(case.partition, batch(*values))
    offsets = writer.flush().get(case.partition, [])
    writer.commit({case.partition: at(next_offset or len(values))})
    return list(offsets)


def fenced(case, slot=0):
    writer = case.writer(slot)
    writer.fence()
    return writer


def values(case):
    return [content.value for _, content in case.shown()]


def marks(case):
    case.shown()  # a broker writes markers a moment after its answer
    return case.cluster.watermarks([case.partition])[case.partition]


def test_records_and_progress_arrive_together(case):
    writer = fenced(case)
    assert writer.progress([case.partition]) == {}

    first, second = transact(case, writer, b"a", b"b", next_offset=15)

    assert first < second
    assert values(case) == [b"a", b"b"]
    assert writer.progress([case.partition]) == {case.partition: at(15)}


def test_a_marker_takes_an_offset_after_every_transaction(case):
    writer = fenced(case)

    assert transact(case, writer, b"a", b"b") == [0, 1]
    assert transact(case, writer, b"c") == [3]
    assert (marks(case).stable, marks(case).high) == (5, 5)


def test_progress_alone_takes_no_offset(case):
    writer = fenced(case)
    transact(case, writer, b"a")
    writer.begin()
    assert writer.flush() == {}
    writer.commit({case.partition: at(9)})

    assert writer.progress([case.partition]) == {case.partition: at(9)}
    assert marks(case).high == 2


def test_an_aborted_transaction_is_not_visible_and_keeps_its_offsets(case):
    writer = fenced(case)
    writer.begin()
    writer.send(case.partition, batch(b"gone"))
    writer.flush()
    writer.abort()
    writer.fence()

    assert transact(case, writer, b"a") == [2]
    assert values(case) == [b"a"]


def test_an_older_writer_is_fenced_and_its_records_are_not_visible(case):
    zombie = fenced(case)
    zombie.begin()
    zombie.send(case.partition, batch(b"zombie"))
    zombie.flush()
    writer = fenced(case)

    transact(case, writer, b"a")
    with pytest.raises(FencedError):
        zombie.commit({case.partition: at(99)})
    zombie.abort()

    assert values(case) == [b"a"]
    assert writer.progress([case.partition]) == {case.partition: at(1)}


def test_writers_of_other_slots_are_not_fenced(case):
    one, other = fenced(case, 1), fenced(case, 2)

    transact(case, other, b"a")
    transact(case, one, b"b")

    assert values(case) == [b"a", b"b"]


def test_seeded_progress_is_returned_and_advanced(case):
    writer = fenced(case)
    writer.commit_progress({case.partition: at(40)})

    assert writer.progress([case.partition]) == {case.partition: at(40)}
    transact(case, writer, b"a", next_offset=41)
    assert case.writer().progress([case.partition]) == {case.partition: at(41)}


def test_read_back_returns_our_records_and_those_of_other_producers_between_them(case):
    writer = fenced(case)
    transact(case, writer, b"a")
    case.shown()  # its marker is written a moment after the commit's answer, at its own offset
    case.foreign(RecordContent(b"foreign"))
    transact(case, writer, b"b")
    case.shown()
    found = []

    writer.read_back(case.partition, 1, lambda rows: found.extend(rows.to_pylist()))

    assert [(row["offset"], row["value"]) for row in found] == [(2, b"foreign"), (3, b"b")]


def read(case, start, end):
    """Read a range; return its result and the (offset, record) pairs."""
    source = SourcePartition(case.partition.topic, "life1", 0)
    wanted, found = OffsetRange(source, start, end, start, None, marks(case)), []
    reader = case.reader()
    reached = reader.read(
        [wanted],
        2**30,
        lambda _, b: found.extend(zip(b.column("offset").to_pylist(), contents_of(b), strict=True)),
    )
    reader.close()
    return reached[wanted], found


def test_a_range_is_read_to_its_end_past_markers_and_aborted_records(case):
    writer = fenced(case)
    transact(case, writer, b"a", b"b")
    writer.begin()
    writer.send(case.partition, batch(b"gone"))
    writer.flush()
    writer.abort()
    writer.fence()

    reached, found = read(case, 1, marks(case).stable)

    assert (reached.end, reached.error) == (5, None)
    assert [(offset, content.value) for offset, content in found] == [(1, b"b")]


def test_a_range_ends_at_its_planned_end(case):
    case.foreign(*(RecordContent(b"%d" % i) for i in range(9)))

    reached, found = read(case, 2, 5)

    assert (reached.end, [offset for offset, _ in found]) == (5, [2, 3, 4])


def test_a_start_beyond_the_log_is_reported_as_truncation(case):
    case.foreign(RecordContent(b"a"))

    reached, found = read(case, 5, 7)

    assert (reached.end, found) == (5, [])
    assert isinstance(reached.error, LogTruncatedError)
