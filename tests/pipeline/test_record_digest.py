"""The digest is the same for every batching, and different for different content."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.record_digest import Digest
from resources.delta.arrow_schema import HEADERS, ROW_SCHEMA
from schemas.kafka.partition import SourcePartition
from tests.support.fake_cluster import RecordContent, rows

ORDERS = SourcePartition("orders", "life1", 0)

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
BYTES = st.none() | st.binary(max_size=6)
SAID = st.builds(
    RecordContent,
    BYTES,
    BYTES,
    st.lists(st.tuples(TEXTS, BYTES), max_size=3).map(tuple),
    st.integers(-1, 2**53),
)


def digest(*batches):
    found = Digest()
    for batch in batches:
        found.add(batch)
    return found.hexdigest()


def of(*records):
    return digest(rows(ORDERS, list(enumerate(records))))


@given(st.lists(SAID, min_size=1, max_size=12), st.data())
def test_the_digest_is_the_same_however_records_are_batched(records, data):
    whole = rows(ORDERS, list(enumerate(records)))
    cut = data.draw(st.integers(0, len(records)))

    sliced = digest(*(b for b in (whole.slice(0, cut), whole.slice(cut)) if b.num_rows))

    assert sliced == digest(whole)
    assert digest(*(rows(ORDERS, [(i, s)]) for i, s in enumerate(records))) == digest(whole)


@given(st.lists(SAID, max_size=4), st.lists(SAID, max_size=4))
def test_records_that_differ_have_different_digests(one, other):
    assert (of(*one) == of(*other)) == (one == other)


def test_offsets_and_partitions_do_not_change_the_digest():
    elsewhere = SourcePartition("us-east.orders", "life9", 3)
    records = [RecordContent(b"a", b"k"), RecordContent(b"b")]

    assert digest(rows(elsewhere, [(70, records[0]), (90, records[1])])) == of(*records)


PLAIN = RecordContent(b"v", b"k", (("a", b"1"), ("b", b"2")), 5)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(RecordContent(None, b"k", PLAIN.headers, 5), id="null for a value"),
        pytest.param(RecordContent(b"", b"k", PLAIN.headers, 5), id="empty value"),
        pytest.param(RecordContent(b"v", None, PLAIN.headers, 5), id="null for a key"),
        pytest.param(RecordContent(b"v", b"", PLAIN.headers, 5), id="empty key"),
        pytest.param(RecordContent(b"k", b"v", PLAIN.headers, 5), id="key and value changed over"),
        pytest.param(RecordContent(b"v", b"k", PLAIN.headers, 6), id="timestamp"),
        pytest.param(RecordContent(b"v", b"k", PLAIN.headers, -1), id="no timestamp"),
        pytest.param(RecordContent(b"v", b"k", PLAIN.headers[::-1], 5), id="order of headers"),
        pytest.param(RecordContent(b"v", b"k", PLAIN.headers * 2, 5), id="a header twice"),
        pytest.param(
            RecordContent(b"v", b"k", (("a", b"1"), ("b", None)), 5), id="null header value"
        ),
        pytest.param(
            RecordContent(b"v", b"k", (("a", b"1"), ("b", b"")), 5), id="empty header value"
        ),
        pytest.param(
            RecordContent(b"v", b"k", (("a", b"1"), ("", b"2")), 5), id="empty header key"
        ),
        pytest.param(
            RecordContent(b"v", b"k", (("a", b"12"), ("b", b"")), 5), id="bytes moved over"
        ),
        pytest.param(RecordContent(b"v", b"k", (), 5), id="no headers"),
    ],
)
def test_different_content_has_a_different_digest(other):
    assert of(other) != of(PLAIN)


def test_header_keys_are_distinguished_by_their_raw_bytes():
    keys = [b"\xff", b"\xfe", "\ufffd".encode(), "\ufffd"]

    digests = [of(RecordContent(b"v", b"k", ((key, b""), ("a", b"1")))) for key in keys]

    assert len(set(digests)) == 3
    assert digests[2] == digests[3]


def test_null_and_empty_have_different_digests():
    assert (
        len(
            {
                of(RecordContent(None)),
                of(RecordContent(b"")),
                of(RecordContent(None, b"")),
                of(RecordContent(b"", b"")),
            }
        )
        == 4
    )


def test_the_order_of_records_changes_the_digest():
    assert of(RecordContent(b"a"), RecordContent(b"b")) != of(
        RecordContent(b"b"), RecordContent(b"a")
    )


def test_moving_a_header_to_another_record_changes_the_digest():
    header = (("a", b"1"),)

    assert of(RecordContent(b"v", headers=header), RecordContent(b"v")) != of(
        RecordContent(b"v"), RecordContent(b"v", headers=header)
    )


def test_null_headers_and_an_empty_list_have_the_same_digest():
    batch = rows(ORDERS, [(0, RecordContent(b"v")), (1, RecordContent(b"w"))])
    column = ROW_SCHEMA.get_field_index("headers")
    empty = batch.set_column(column, ROW_SCHEMA.field("headers"), pa.array([[], None], HEADERS))
    nulls = batch.set_column(column, ROW_SCHEMA.field("headers"), pa.nulls(2, HEADERS))

    assert digest(empty) == digest(nulls) == digest(batch)


def test_the_size_is_the_bytes_of_keys_values_and_headers():
    batch = rows(ORDERS, [(0, PLAIN), (1, RecordContent(None))])

    assert Digest().add(batch) == len(b"vk" + b"a1b2")
    assert Digest().add(batch.slice(1)) == 0
