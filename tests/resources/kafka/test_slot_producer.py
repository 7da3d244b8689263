"""A slot's transactions on a real broker: fields are unchanged, transactions are atomic."""

import threading

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from resources.kafka import slot_producer as producer_module
from resources.kafka.cluster import KafkaCluster
from resources.kafka.slot_producer import SlotProducer
from resources.librdkafka import bindings
from schemas.config.flow import Flow
from schemas.errors.base import DeltamirrorError
from schemas.errors.environment import UnreachableError
from schemas.errors.source import RangeUnfinishedError
from schemas.errors.target import BatchRejectedError, FencedError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import Progress
from tests.support.brokers import Record, consume_all, create_topic, high_watermarks, produce
from tests.support.fake_cluster import RecordContent, contents_of, rows
from tests.support.log_segment import read_log

pytestmark = pytest.mark.kafka

ORDERS = SourcePartition("orders", "life1", 0)
ODD = [
    RecordContent(None, None),
    RecordContent(b"", b""),
    RecordContent(None, b""),
    RecordContent(b"", None),
    RecordContent(b"\0\xff", b"\xfe\0"),
    RecordContent(b"v", b"k", (("a", b"1"), ("b", b"2"), ("a", b"1"), ("a", b"3"))),
    RecordContent(
        b"v", b"k", (("null", None), ("empty", b""), ("", b"empty key"), ("nul", b"a\0b"))
    ),
    RecordContent(b"v", b"k", (("\u00e9\u4e2d", b"\xff"),)),
    RecordContent(b"v", b"k", (), -1),
    RecordContent(b"v", b"k", (), 1),
    RecordContent(b"v", b"k", (), 9_300_000_000_000_000),
]


def batch(*contents, start=0):
    return rows(ORDERS, list(enumerate(contents, start)))


@pytest.fixture
def flow(names):
    return Flow(names("east"), "eu-west")


@pytest.fixture
def remote(target, unique_topic):
    create_topic(target.bootstrap_servers, unique_topic, partitions=2)
    return TopicPartition(unique_topic, 0)


@pytest.fixture
def open_slot(target, flow):
    """Return a function that opens the slot as a new process does."""
    made = []

    def opened(**settings):
        places = {"bootstrap.servers": target.bootstrap_servers}
        made.append(SlotProducer(flow, 3, {**places, **settings}, places))
        return made[-1]

    yield opened
    for slot in made:
        slot.close()


def send(slot, remote, *contents, next_offset=None):
    """Send *contents* in a transaction; return their offsets."""
    slot.fence()
    slot.begin()
    slot.send(remote, batch(*contents))
    offsets = slot.flush()[remote]
    slot.commit({remote: at(next_offset or len(contents))})
    return offsets.tolist()


def at(next_offset, topic_id="life1"):
    return Progress(next_offset, topic_id, "AAAAAAAAAAAAAAAAAAAAAA")


def shown(target, remote, isolation="read_committed"):
    """Return (offset, content) of the records that are visible with *isolation*."""
    return [
        (
            m.offset(),
            RecordContent(m.value(), m.key(), tuple(m.headers() or ()), m.timestamp()[1]),
        )
        for m in consume_all(target.bootstrap_servers, remote.topic, isolation)
        if m.partition() == remote.partition
    ]


def test_every_field_arrives_unchanged_at_the_reported_offset(open_slot, remote, target):
    offsets = send(open_slot(), remote, *ODD)

    assert shown(target, remote) == list(zip(offsets, ODD, strict=True))


def test_records_are_written_to_their_partition_regardless_of_their_key(open_slot, target, remote):
    other = TopicPartition(remote.topic, 1)
    slot = open_slot()
    slot.fence()
    slot.begin()
    slot.send(remote, batch(RecordContent(b"a", b"same"), RecordContent(b"b", b"same")))
    slot.send(other, batch(RecordContent(b"c", b"same")))
    offsets = slot.flush()
    slot.commit({remote: at(2), other: at(1)})

    assert {p: o.tolist() for p, o in offsets.items()} == {remote: [0, 1], other: [0]}
    assert [s.value for _, s in shown(target, remote)] == [b"a", b"b"]
    assert [s.value for _, s in shown(target, other)] == [b"c"]


def test_offsets_skip_the_marker_of_the_previous_transaction(open_slot, remote):
    slot = open_slot()

    assert send(slot, remote, RecordContent(b"a"), RecordContent(b"b")) == [0, 1]
    assert send(slot, remote, RecordContent(b"c")) == [3]


def test_a_large_transaction_has_an_offset_for_every_record(open_slot, remote):
    slot = open_slot()
    slot.fence()
    slot.begin()
    for start in range(0, 30_000, 10_000):
        contents = [RecordContent(b"x" * 50)] * 10_000
        slot.send(remote, batch(*contents, start=start))
    offsets = slot.flush()[remote]
    slot.commit({remote: at(30_000)})

    assert np.array_equal(offsets, np.arange(30_000))


def test_a_record_larger_than_the_clients_default_limit_arrives(open_slot, target, names):
    topic = names("large")
    create_topic(target.bootstrap_servers, topic, max_message_bytes=5_000_000)
    large = TopicPartition(topic, 0)

    send(open_slot(), large, RecordContent(b"x" * 3_000_000))

    assert [len(s.value) for _, s in shown(target, large)] == [3_000_000]


def test_progress_is_committed_with_the_transaction_and_its_incarnation(open_slot, remote):
    slot = open_slot()
    slot.fence()
    assert slot.progress([remote]) == {}
    slot.begin()
    slot.send(remote, batch(RecordContent()))
    slot.flush()

    slot.commit({remote: at(12, "life1+2")})

    assert slot.progress([remote]) == {remote: at(12, "life1+2")}
    assert open_slot().progress([remote]) == {remote: at(12, "life1+2")}


def test_progress_metadata_without_a_trailing_nul_byte_is_read(open_slot, remote, flow, target):
    cluster = KafkaCluster("eu-west", {"bootstrap.servers": target.bootstrap_servers})
    slot = open_slot()
    slot.fence()
    for number, topic_id in enumerate(("l", "life1", "a-life-of-a-much-greater-length" * 3)):
        written = at(number, topic_id)
        cluster.commit_offsets(flow.progress_group, {remote: (number, written.metadata)})

        assert slot.progress([remote]) == {remote: written}


def test_progress_alone_is_committed_without_a_record_and_without_a_marker(
    open_slot, remote, target
):
    slot = open_slot()
    slot.fence()
    slot.begin()
    assert slot.flush() == {}
    slot.commit({remote: at(7)})

    assert slot.progress([remote]) == {remote: at(7)}
    assert high_watermarks(target.bootstrap_servers, remote.topic)[0] == 0


def test_seeded_progress_is_returned_and_then_advanced_by_transactions(open_slot, remote):
    slot = open_slot()
    slot.fence()
    slot.commit_progress({remote: at(40)})

    assert slot.progress([remote]) == {remote: at(40)}
    send(slot, remote, RecordContent(), next_offset=41)
    assert slot.progress([remote]) == {remote: at(41)}


def test_an_aborted_transaction_is_not_visible_and_the_next_one_works(open_slot, remote, target):
    slot = open_slot()
    send(slot, remote, RecordContent(b"before"))
    slot.begin()
    slot.send(remote, batch(RecordContent(b"gone")))
    slot.flush()
    slot.abort()

    assert send(slot, remote, RecordContent(b"after"), next_offset=2) == [4]

    assert [s.value for _, s in shown(target, remote)] == [b"before", b"after"]
    assert slot.progress([remote]) == {remote: at(2)}


def test_the_next_process_aborts_the_open_transaction_of_a_dead_one(open_slot, remote, target):
    dead = open_slot()
    dead.fence()
    dead.begin()
    dead.send(remote, batch(RecordContent(b"gone")))
    dead.flush()

    send(open_slot(), remote, RecordContent(b"a"))

    assert [s.value for _, s in shown(target, remote)] == [b"a"]


def test_a_zombie_is_fenced_and_none_of_its_records_is_visible(open_slot, remote, target):
    zombie = open_slot()
    zombie.fence()
    zombie.begin()
    zombie.send(remote, batch(RecordContent(b"zombie")))
    zombie.flush()

    send(open_slot(), remote, RecordContent(b"a"))
    with pytest.raises(FencedError):
        zombie.commit({remote: at(99)})
    zombie.abort()

    assert [s.value for _, s in shown(target, remote)] == [b"a"]
    assert open_slot().progress([remote]) == {remote: at(1)}


def test_a_zombie_that_was_idle_is_fenced_when_it_sends(open_slot, remote, target):
    zombie = open_slot()
    send(zombie, remote, RecordContent(b"a"))
    send(open_slot(), remote, RecordContent(b"b"), next_offset=2)

    with pytest.raises(FencedError):
        send(zombie, remote, RecordContent(b"c"), next_offset=99)

    assert [s.value for _, s in shown(target, remote)] == [b"a", b"b"]


@pytest.mark.parametrize("milliseconds", [5_000, 30_000])
def test_a_transaction_timeout_below_the_request_timeout_is_accepted(
    open_slot, remote, milliseconds
):
    slot = open_slot(**{"transaction.timeout.ms": milliseconds})

    assert send(slot, remote, RecordContent(b"v")) == [0]


def test_slots_do_not_fence_one_another(open_slot, target, flow, remote):
    places = {"bootstrap.servers": target.bootstrap_servers}
    one, other = open_slot(), SlotProducer(flow, 4, places, places)
    one.fence()

    send(other, remote, RecordContent(b"a"))
    send(one, remote, RecordContent(b"b"), next_offset=2)

    assert len(shown(target, remote)) == 2
    other.close()


EXACT = [
    RecordContent(b"v", b"k", (("h", b"1"),), 0),
    RecordContent(None, None, ((b"\xff", b"\xfe"), (b"h", None)), 5),
    RecordContent(b"", b"", (("a\0b", b""), ("a", b"")), 5),
]


@pytest.mark.parametrize("odd", EXACT, ids=["timestamp 0", "not UTF-8", "NUL"])
def test_a_record_that_confluents_producer_would_alter_is_written_unchanged(
    open_slot, remote, target, odd
):
    slot, plain = open_slot(), RecordContent(b"v", b"k", (("h", b"1"),), 5)

    offsets = send(slot, remote, plain, odd, plain)
    assert slot.progress([remote]) == {remote: at(3)}
    offsets += send(slot, remote, odd, next_offset=4)
    slot.fence()
    offsets += send(slot, remote, plain, next_offset=5)

    sent = [plain, odd, plain, odd, plain]
    found = {w.offset: w[1:] for w in read_log(target.home, remote.topic)}
    assert [found[o] for o in offsets] == [_as_written(content) for content in sent]
    assert [m.offset() for m in _messages(target, remote)] == offsets
    assert slot.progress([remote]) == {remote: at(5)}


def _as_written(content):
    headers = [(k.encode() if isinstance(k, str) else k, v) for k, v in content.headers]
    return content.timestamp_ms, content.key, content.value, headers


def _messages(target, remote):
    return consume_all(target.bootstrap_servers, remote.topic)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("TIMESTAMP_POSITION", 88, id="not at its known position"),
        pytest.param("is_layout_known", lambda: False, id="an unknown release"),
    ],
)
def test_a_record_with_timestamp_0_raises_an_error_with_its_offset(
    open_slot, remote, target, monkeypatch, name, value
):
    monkeypatch.setattr(bindings, name, value)
    plain, slot = RecordContent(b"v", b"k", (), 5), open_slot()
    slot.fence()
    slot.begin()

    with pytest.raises(BatchRejectedError, match=r"timestamp 0 .*offset 21 ") as refused:
        slot.send(remote, batch(plain, EXACT[0], plain, start=20))
    slot.abort()

    assert set(refused.value.partitions) == {remote}
    assert shown(target, remote) == []
    send(slot, remote, plain)
    assert len(shown(target, remote)) == 1


@pytest.mark.parametrize(
    "content", [RecordContent(timestamp_ms=5), EXACT[0]], ids=["plain", "timestamp 0"]
)
def test_a_topic_that_sets_its_own_timestamps_is_refused_and_gets_no_visible_record(
    open_slot, target, names, content
):
    topic = names("stamped")
    create_topic(target.bootstrap_servers, topic, message_timestamp_type="LogAppendTime")
    stamped, slot = TopicPartition(topic, 0), open_slot()
    slot.fence()
    slot.begin()
    slot.send(stamped, batch(content))

    with pytest.raises(BatchRejectedError, match="LogAppendTime") as refused:
        slot.flush()
    slot.abort()

    assert set(refused.value.partitions) == {stamped}
    assert shown(target, stamped) == []


@pytest.mark.parametrize(
    ("settings", "content"),
    [
        pytest.param({"max_message_bytes": 2_000}, RecordContent(b"\xff" * 9_000), id="too large"),
        pytest.param(
            {"cleanup_policy": "compact"}, RecordContent(b"v", None), id="null key, compacted"
        ),
        pytest.param(
            {"message_timestamp_after_max_ms": 3_600_000},
            RecordContent(timestamp_ms=9_300_000_000_000_000),
            id="far future",
        ),
    ],
)
def test_a_record_that_the_broker_refuses_raises_an_error_with_its_partition(
    open_slot, target, names, settings, content
):
    topic = names("strict")
    create_topic(target.bootstrap_servers, topic, **settings)
    strict, slot = TopicPartition(topic, 0), open_slot()
    slot.fence()
    slot.begin()
    slot.send(strict, batch(content))

    with pytest.raises(BatchRejectedError) as refused:
        slot.flush()
    slot.abort()

    assert set(refused.value.partitions) == {strict}
    assert shown(target, strict) == []


def test_a_refused_record_names_only_its_partition_without_waiting_for_queued_records(
    open_slot, target, names, monkeypatch
):
    monkeypatch.setattr(
        producer_module, "RESPONSE_TIMEOUT_S", 600.0
    )  # a wait for it hits the limit
    topic = names("mixed")
    create_topic(target.bootstrap_servers, topic, partitions=2, max_message_bytes=2_000)
    refusing, healthy = (TopicPartition(topic, i) for i in (0, 1))
    slot = open_slot(**{"batch.size": 1_000})
    slot.fence()
    slot.begin()
    slot.send(refusing, batch(RecordContent(b"\xff" * 9_000)))
    slot.send(healthy, batch(*[RecordContent(b"x" * 100)] * 20_000))

    with pytest.raises(BatchRejectedError) as refused:
        slot.flush()
    slot.abort()

    assert set(refused.value.partitions) == {refusing}


def test_a_missing_partition_is_refused(open_slot, remote):
    slot = open_slot()
    slot.fence()
    slot.begin()
    nowhere = TopicPartition(remote.topic, 77)

    def write():
        slot.send(nowhere, batch(RecordContent()))
        slot.flush()

    with pytest.raises(BatchRejectedError) as refused:
        write()
    slot.abort()

    assert set(refused.value.partitions) == {nowhere}


class TestATargetThatStopsAnswering:
    """Uses its own broker, because after a freeze a broker may be down for a while."""

    @pytest.fixture
    def target(self, make_broker):
        return make_broker("frozen")

    def test_a_target_that_does_not_answer_raises_an_error_in_time(
        self, open_slot, remote, target, monkeypatch
    ):
        slot = open_slot()
        slot.fence()
        slot.begin()
        slot.send(remote, batch(RecordContent(b"a")))
        monkeypatch.setattr(producer_module, "RESPONSE_TIMEOUT_S", 1.0)
        target.freeze()
        try:
            with pytest.raises(DeltamirrorError) as first:
                slot.flush()
            slot.abort()
            with pytest.raises(DeltamirrorError) as second:
                open_slot().fence()
        finally:
            target.thaw()

        assert isinstance(first.value, UnreachableError)
        assert isinstance(second.value, UnreachableError)

    def test_a_batch_that_was_sent_twice_is_not_mistaken_for_a_topic_that_sets_timestamps(
        self, open_slot, remote, target
    ):
        slot = open_slot(**{"socket.timeout.ms": 1_500})
        send(slot, remote, RecordContent(b"a"))
        slot.begin()
        slot.send(remote, batch(RecordContent(b"b")))
        slot.flush()
        target.freeze()
        thaws = threading.Timer(4.0, target.thaw)
        thaws.start()
        slot.send(remote, batch(RecordContent(b"c")))
        try:
            offsets = slot.flush()[remote]
        finally:
            thaws.join()

        assert slot._fenced_producer().first_restamped is not None
        read_log = shown(target, remote, "read_uncommitted")[1:]
        assert [(offset, content.value) for offset, content in read_log] == [
            *zip(offsets.tolist(), (b"b", b"c"), strict=True)
        ]

    def test_the_next_process_finds_the_outcome_of_a_commit_without_an_answer(
        self, open_slot, remote, target, monkeypatch
    ):
        slot = open_slot(**{"socket.timeout.ms": 1_500})
        slot.fence()
        slot.commit_progress({remote: at(0)})
        slot.begin()
        slot.send(remote, batch(RecordContent(b"a")))
        slot.flush()
        monkeypatch.setattr(producer_module, "RESPONSE_TIMEOUT_S", 1.0)
        target.freeze()
        try:
            with pytest.raises(DeltamirrorError):
                slot.commit({remote: at(1)})
            slot.abort()
        finally:
            target.thaw()
        monkeypatch.undo()

        after = open_slot()
        after.fence()
        known = after.progress([remote])[remote].next_offset

        assert known == len(shown(target, remote))


# Reading back


def read_back(slot, remote, start=0):
    found = []
    slot.read_back(
        remote,
        start,
        lambda b: found.extend(zip(b.column("offset").to_pylist(), contents_of(b), strict=True)),
    )
    return found


def test_written_records_are_read_back_unchanged_from_an_offset_on(open_slot, remote):
    slot = open_slot()
    offsets = send(slot, remote, *ODD)
    send(slot, remote, RecordContent(b"last"), next_offset=20)

    assert read_back(slot, remote)[: len(ODD)] == list(zip(offsets, ODD, strict=True))
    assert read_back(slot, remote, len(ODD)) == [(len(ODD) + 1, RecordContent(b"last"))]


def test_read_back_ends_after_markers_at_the_end_of_the_log(open_slot, remote):
    slot = open_slot()
    send(slot, remote, RecordContent(b"a"))

    assert read_back(slot, remote, 2) == []
    assert read_back(slot, TopicPartition(remote.topic, 1)) == []


def test_a_target_log_returns_its_start_offset_and_whether_it_is_compacted(
    open_slot, target, names
):
    plain, compacted = TopicPartition(names("plain"), 0), TopicPartition(names("compacted"), 0)
    create_topic(target.bootstrap_servers, plain.topic)
    create_topic(target.bootstrap_servers, compacted.topic, cleanup_policy="compact,delete")
    produce(target.bootstrap_servers, plain.topic, [Record(b"k", b"v")] * 3)
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    cut = KafkaPartition(plain.topic, 0, 2)
    admin.delete_records([cut])[cut].result(30)
    slot = open_slot()

    assert [slot.log_start_offset(p) for p in (plain, compacted)] == [2, 0]
    assert [slot.is_compacted(p) for p in (plain, compacted)] == [False, True]
    assert not slot.is_compacted(TopicPartition(names("missing"), 0))


def test_read_back_skips_aborted_records_and_includes_those_of_other_producers(
    open_slot, remote, target
):
    slot = open_slot()
    slot.fence()
    slot.begin()
    slot.send(remote, batch(RecordContent(b"gone")))
    slot.flush()
    slot.abort()
    slot.fence()  # waits for the abort's marker
    produce(target.bootstrap_servers, remote.topic, [Record(None, b"foreign", timestamp=9)])

    assert [s.value for _, s in read_back(slot, remote)] == [b"foreign"]


def test_read_back_waits_for_records_hidden_by_an_open_transaction(
    open_slot, remote, target, names, monkeypatch
):
    monkeypatch.setattr("resources.kafka.range_reader.READ_TIMEOUT_S", 1.0)
    held = Producer(
        {"bootstrap.servers": target.bootstrap_servers, "transactional.id": names("foreign")}
    )
    held.init_transactions(10)
    held.begin_transaction()
    held.produce(remote.topic, b"open", partition=0)
    held.flush(10)
    slot = open_slot()
    send(slot, remote, RecordContent(b"hidden"))

    with pytest.raises(RangeUnfinishedError):
        read_back(slot, remote)
    held.commit_transaction(10)
    consume_all(target.bootstrap_servers, remote.topic)

    assert [s.value for _, s in read_back(slot, remote)] == [b"open", b"hidden"]
