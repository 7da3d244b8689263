"""Records that confluent-kafka would alter lie in a real broker's log as they were given."""

import pytest
from confluent_kafka import KafkaException

from resources.librdkafka.arrow_producer import ArrowProducer
from tests.support.brokers import Record, create_topic, produce_exactly
from tests.support.log_segment import read_log

pytestmark = pytest.mark.kafka

RECORDS = [
    pytest.param(Record(None, None, [], 0), id="timestamp 0 and nothing else"),
    pytest.param(Record(b"", b"", [("h", b"")], 0), id="timestamp 0 and empty"),
    pytest.param(Record(b"k", b"v", [], -1), id="no timestamp"),
    pytest.param(Record(b"k", b"v", [], 9_300_000_000_000_000), id="far future"),
    pytest.param(Record(b"k", b"v", [(b"\xff\xfe", b"\xff")], 5), id="header key not UTF-8"),
    pytest.param(Record(b"k", b"v", [(b"a\0b", b""), (b"\0", None)], 5), id="NUL in header keys"),
    pytest.param(Record(b"k", b"v", [("h", b"1"), ("", None), ("h", b"1")], 5), id="repeated"),
    pytest.param(Record(b"\0\xff", b"\0" * 9, [("\u00e9", b"")], 5), id="bytes that are no text"),
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_is_in_the_log_exactly_as_it_was_sent(target, unique_topic, record):
    create_topic(target.bootstrap_servers, unique_topic)
    before, after = Record(b"k", b"v", [("h", b"1")], 1), Record(b"k", b"v", [], 2)

    produce_exactly(target.bootstrap_servers, unique_topic, [before, record, after])

    found = read_log(target.home, unique_topic)
    assert [w[1:] for w in found] == [
        (r.timestamp, r.key, r.value, [(_bytes(k), v) for k, v in r.headers])
        for r in (before, record, after)
    ]


def _bytes(key):
    return key.encode() if isinstance(key, str) else key


def test_wrong_settings_are_reported():
    with pytest.raises(KafkaException, match="No such configuration property"):
        ArrowProducer({"no.such.setting": 1}, "")
