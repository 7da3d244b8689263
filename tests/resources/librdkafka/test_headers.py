"""Every byte of header keys is read; a real broker's log gives the expected keys."""

import pytest

from resources.kafka.range_reader import RangeReader
from resources.librdkafka import headers as record_headers
from resources.librdkafka.bindings import is_layout_known
from schemas.kafka.partition import SourcePartition, Watermarks
from schemas.staging.read_range import OffsetRange
from tests.support.brokers import Record, create_topic, produce_exactly
from tests.support.fake_cluster import contents_of
from tests.support.log_segment import read_log

pytestmark = pytest.mark.kafka

PLAIN = Record(b"k", b"v", [("h", b"1"), ("h", None)], 5)


@pytest.fixture
def read(source, unique_topic):
    """Write records to a topic and read them; return the end offset and the batches."""
    create_topic(source.bootstrap_servers, unique_topic)
    reader = RangeReader({"bootstrap.servers": source.bootstrap_servers})

    def read(*records):
        produce_exactly(source.bootstrap_servers, unique_topic, records)
        n, batches = len(records), []
        partition = SourcePartition(unique_topic, "life1", 0)
        wanted = OffsetRange(partition, 0, n, 0, None, Watermarks(0, n, n))
        reached = reader.read([wanted], 2**40, lambda _, batch: batches.append(batch))
        return reached[wanted], batches

    yield read
    reader.close()


def headers_of(batch):
    return [
        [(_bytes(key), value) for key, value in record.headers] for record in contents_of(batch)
    ]


def _bytes(key):
    return key.encode() if isinstance(key, str) else key


ODD_KEYS = [
    pytest.param(b"\xff\xfe", id="not UTF-8"),
    pytest.param(b"a\0b", id="a NUL within"),
    pytest.param(b"12345678\0", id="a NUL at the end"),
    pytest.param(b"\0", id="nothing but a NUL"),
    pytest.param(b"x" * 64 + b"\xff", id="not UTF-8 at its 65th byte"),
    pytest.param("\u00e9".encode() * 40, id="long and UTF-8"),
    pytest.param(b"", id="empty"),
]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_every_byte_of_a_header_key_is_read_and_other_headers_are_unaltered(
    read, source, unique_topic, key
):
    odd = Record(b"k", b"v", [("a", b"1"), (key, b"\0x"), (key, None)], 5)
    records = [PLAIN, odd, Record(b"k", b"v", [], 5), PLAIN]

    reached, (batch,) = read(*records)

    assert reached.error is None
    assert headers_of(batch) == [[(_bytes(k), v) for k, v in r.headers] for r in records]
    assert headers_of(batch) == [w.headers for w in read_log(source.home, unique_topic)]


def test_header_keys_are_kept_as_bytes_only_where_one_is_not_utf8(read):
    plain, odd = [("h", b"1")], [("h", b"1"), (b"\xff", b"2")]

    _, (batch,) = read(*(Record(b"k", b"v", headers) for headers in (plain, odd)))

    assert batch.column("raw_header_keys").to_pylist() == [None, [b"h", b"\xff"]]
    assert [h["key"] for h in batch.column("headers")[1].as_py()] == ["h", "\ufffd"]


def test_an_unknown_release_of_librdkafka_only_cuts_header_keys_at_a_nul(read, monkeypatch):
    monkeypatch.setattr(record_headers, "is_layout_known", lambda: False)
    odd = [("h", b"1"), ("", b"\0x"), (b"\xff\xfe", None), ("h", b""), (b"a\0b", b"2"), ("b", b"3")]
    records = [Record(b"k", b"v", headers, 5) for headers in ([], odd, [("h", None)], [])]

    reached, (batch,) = read(*records)

    assert reached.error is None
    expected = [[(_bytes(key), value) for key, value in r.headers] for r in records]
    expected[1][4] = (b"a", b"2")
    assert headers_of(batch) == expected


def test_the_layout_of_the_installed_librdkafka_is_known():
    assert is_layout_known()
