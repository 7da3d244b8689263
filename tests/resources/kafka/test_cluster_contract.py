"""What replay and staging are owed by a cluster: by the one in a dict, and by real brokers."""

import pytest

from resources.kafka.cluster import KafkaCluster
from resources.kafka.range_reader import RangeReader
from resources.kafka.slot_producer import SlotProducer
from schemas.config.flow import Flow
from schemas.errors import FencedError, LogTruncatedError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import Progress
from schemas.staging.read_range import OffsetRange
from tests.support.brokers import Record, consume_all, create_topic, produce
from tests.support.fake_cluster import FakeCluster, FakeSource, FakeTarget, Said, rows, says

STAGED = SourcePartition("orders", "life1", 0)


class InADict:
    """The fake."""

    def __init__(self, names):
        self.cluster = FakeCluster()
        self._flow = Flow(names("east"), "eu-west")
        self.partition = TopicPartition(names(), 0)
        self.cluster.make(self.partition.topic)

    def writer(self, slot=0):
        return FakeTarget(self.cluster, self._flow, slot)

    def reader(self):
        return FakeSource(self.cluster)

    def foreign(self, *said):
        self.cluster.append(self.partition, *said)

    def shown(self):
        return self.cluster.visible(self.partition)


class OnABroker:
    """The real one."""

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

    def foreign(self, *said):
        records = [Record(s.key, s.value, list(s.headers), s.timestamp_ms) for s in said]
        produce(self._bootstrap, self.partition.topic, records)

    def shown(self):
        return [
            (m.offset(), Said(m.value(), m.key(), tuple(m.headers() or ()), m.timestamp()[1]))
            for m in consume_all(self._bootstrap, self.partition.topic)
        ]


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.kafka)])
def place(request, names):
    if request.param == "fake":
        return InADict(names)
    return OnABroker(request.getfixturevalue("target"), names)


def batch(*values, start=0):
    return rows(STAGED, [(i, Said(value)) for i, value in enumerate(values, start)])


def at(next_offset):
    return Progress(next_offset, "life1", "target-life")


def transact(place, writer, *values, next_offset=None):
    """Send *values* in a transaction of *writer*, fenced before; return their offsets."""
    writer.begin()
    writer.send(place.partition, batch(*values))
    offsets = writer.settle().get(place.partition, [])
    writer.commit({place.partition: at(next_offset or len(values))})
    return list(offsets)


def fenced(place, slot=0):
    writer = place.writer(slot)
    writer.fence()
    return writer


def values(place):
    return [said.value for _, said in place.shown()]


def marks(place):
    place.shown()  # a broker's markers land a moment after its answer
    return place.cluster.watermarks([place.partition])[place.partition]


def test_records_and_progress_arrive_together(place):
    writer = fenced(place)
    assert writer.progress([place.partition]) == {}

    first, second = transact(place, writer, b"a", b"b", next_offset=15)

    assert first < second
    assert values(place) == [b"a", b"b"]
    assert writer.progress([place.partition]) == {place.partition: at(15)}


def test_a_marker_takes_an_offset_behind_every_transaction(place):
    writer = fenced(place)

    assert transact(place, writer, b"a", b"b") == [0, 1]
    assert transact(place, writer, b"c") == [3]
    assert (marks(place).stable, marks(place).high) == (5, 5)


def test_progress_alone_takes_no_offset(place):
    writer = fenced(place)
    transact(place, writer, b"a")
    writer.begin()
    assert writer.settle() == {}
    writer.commit({place.partition: at(9)})

    assert writer.progress([place.partition]) == {place.partition: at(9)}
    assert marks(place).high == 2


def test_an_aborted_transaction_shows_nothing_and_keeps_its_offsets(place):
    writer = fenced(place)
    writer.begin()
    writer.send(place.partition, batch(b"gone"))
    writer.settle()
    writer.abort()
    writer.fence()

    assert transact(place, writer, b"a") == [2]
    assert values(place) == [b"a"]


def test_an_older_writer_is_fenced_and_shows_nothing(place):
    zombie = fenced(place)
    zombie.begin()
    zombie.send(place.partition, batch(b"zombie"))
    zombie.settle()
    writer = fenced(place)

    transact(place, writer, b"a")
    with pytest.raises(FencedError):
        zombie.commit({place.partition: at(99)})
    zombie.abort()

    assert values(place) == [b"a"]
    assert writer.progress([place.partition]) == {place.partition: at(1)}


def test_writers_of_other_slots_are_left_alone(place):
    one, other = fenced(place, 1), fenced(place, 2)

    transact(place, other, b"a")
    transact(place, one, b"b")

    assert values(place) == [b"a", b"b"]


def test_seeded_progress_is_told_and_moved(place):
    writer = fenced(place)
    writer.seed({place.partition: at(40)})

    assert writer.progress([place.partition]) == {place.partition: at(40)}
    transact(place, writer, b"a", next_offset=41)
    assert place.writer().progress([place.partition]) == {place.partition: at(41)}


def test_what_is_written_is_read_back_with_what_others_wrote_between(place):
    writer = fenced(place)
    transact(place, writer, b"a")
    place.shown()  # its marker lands a moment after the commit's answer, and has a place of its own
    place.foreign(Said(b"foreign"))
    transact(place, writer, b"b")
    place.shown()
    found = []

    writer.read_back(place.partition, 1, lambda rows: found.extend(rows.to_pylist()))

    assert [(row["offset"], row["value"]) for row in found] == [(2, b"foreign"), (3, b"b")]


def read(place, start, end):
    """Read a range; return how far it came and the (offset, record) pairs."""
    source = SourcePartition(place.partition.topic, "life1", 0)
    wanted, found = OffsetRange(source, start, end, start, None, marks(place)), []
    reader = place.reader()
    reached = reader.read(
        [wanted],
        2**30,
        lambda _, b: found.extend(zip(b.column("offset").to_pylist(), says(b), strict=True)),
    )
    reader.close()
    return reached[wanted], found


def test_a_range_is_read_to_its_end_also_behind_markers_and_aborted_records(place):
    writer = fenced(place)
    transact(place, writer, b"a", b"b")
    writer.begin()
    writer.send(place.partition, batch(b"gone"))
    writer.settle()
    writer.abort()
    writer.fence()

    reached, found = read(place, 1, marks(place).stable)

    assert (reached.end, reached.error) == (5, None)
    assert [(offset, said.value) for offset, said in found] == [(1, b"b")]


def test_a_range_ends_where_it_was_planned_to_end(place):
    place.foreign(*(Said(b"%d" % i) for i in range(9)))

    reached, found = read(place, 2, 5)

    assert (reached.end, [offset for offset, _ in found]) == (5, [2, 3, 4])


def test_a_start_that_the_log_does_not_have_is_a_cut_log(place):
    place.foreign(Said(b"a"))

    reached, found = read(place, 5, 7)

    assert (reached.end, found) == (5, [])
    assert isinstance(reached.error, LogTruncatedError)
