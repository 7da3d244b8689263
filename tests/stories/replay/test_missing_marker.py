"""A broker ends a transaction without a marker: the next commit must not make it visible.

KRaft brokers do that if the partition has no leader at that moment. Here the marker is removed from
the log afterwards, by restoring an older copy of the partition's folder.
"""

import pytest

from resources.kafka.slot_producer import SlotProducer
from schemas.config.flow import Flow
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import Progress
from tests.support.brokers import consume_all, create_topic
from tests.support.fake_cluster import RecordContent, rows
from tests.support.unclean_leader import PartitionBackup, watermarks

pytestmark = [pytest.mark.kafka, pytest.mark.story]

FLOW = Flow("us-east", "eu-west")
OURS = TopicPartition("us-east.orders", 0)
SOURCE = SourcePartition("orders", "life1", 0)


@pytest.fixture
def broker(make_broker):
    made = make_broker("eu-west")
    create_topic(made.bootstrap_servers, OURS.topic)
    return made


@pytest.fixture
def writer(broker):
    """Return a function that opens the slot's producer as a new process does."""
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    opened = []

    def open_():
        opened.append(SlotProducer(FLOW, OURS.partition, settings, settings))
        opened[-1].fence()
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


def send(slot, *values):
    slot.begin()
    slot.send(OURS, rows(SOURCE, [(i, RecordContent(value)) for i, value in enumerate(values)]))
    return slot.flush()[OURS]


def commit(slot, next_offset):
    slot.commit({OURS: Progress(next_offset, "life1", "remote")})


def shown(broker):
    return [message.value() for message in consume_all(broker.bootstrap_servers, OURS.topic)]


@pytest.fixture
def left_open(broker, writer, tmp_path):
    """Two records of an aborted transaction, without the abort marker."""
    slot = writer()
    slot.commit_progress({OURS: Progress(0, "life1", "remote")})
    send(slot, b"never", b"committed")
    before_its_end = PartitionBackup(broker, OURS, tmp_path / "older")
    writer()
    before_its_end.restore()
    marks = watermarks(broker, OURS)
    assert (marks.stable, marks.high) == (0, 2)


@pytest.mark.usefixtures("left_open")
def test_records_of_a_transaction_without_a_marker_do_not_become_visible_with_the_next_one(
    broker, writer
):
    slot = writer()

    slot.abort_leftovers({OURS: 0})
    send(slot, b"exactly", b"once")
    commit(slot, 2)

    assert shown(broker) == [b"exactly", b"once"]


@pytest.mark.usefixtures("left_open")
def test_without_recovery_the_next_commit_makes_them_visible(broker, writer):
    slot = writer()

    send(slot, b"exactly", b"once")
    commit(slot, 2)

    assert shown(broker) == [b"never", b"committed", b"exactly", b"once"]


@pytest.mark.usefixtures("left_open")
def test_mapped_records_are_not_aborted_as_leftovers(broker, writer):
    slot = writer()

    slot.abort_leftovers({OURS: 2})
    send(slot, b"more")
    commit(slot, 3)

    assert shown(broker) == [b"never", b"committed", b"more"]


def test_without_an_open_transaction_nothing_is_sent(broker, writer):
    slot = writer()
    slot.commit_progress({OURS: Progress(0, "life1", "remote")})
    send(slot, b"a")
    commit(slot, 1)

    writer().abort_leftovers({OURS: 1})

    assert watermarks(broker, OURS).high == 2
