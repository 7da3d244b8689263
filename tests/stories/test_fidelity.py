"""A record arrives as it was written."""

from __future__ import annotations

import pytest

from tests.brokers import Record, consume_all, create_topic, produce
from tests.stories.world import contents

pytestmark = pytest.mark.kafka

RECORDS = [
    pytest.param(Record(None, b"v"), id="null key"),
    pytest.param(Record(b"k", None), id="null value"),
    pytest.param(Record(None, None), id="null key and value"),
    pytest.param(Record(b"", b""), id="empty key and value"),
    pytest.param(Record(b"k", b"v", [("h", b"1"), ("h", b"2")]), id="headers with the same key"),
    pytest.param(Record(b"k", b"v", [("b", b"1"), ("a", b"2"), ("b", b"1")]), id="header order"),
    pytest.param(Record(b"k", b"v", [("h", None), ("h", b"")]), id="null and empty header value"),
    pytest.param(Record(b"k", b"v", [("", b"x")]), id="empty header key"),
    pytest.param(Record(b"\x00\xff\xfe", b"\x00" * 3), id="bytes that are no text"),
    pytest.param(Record(b"k", bytes(900_000)), id="900 KB value"),
    pytest.param(Record(b"k", b"v", timestamp=-1), id="no timestamp"),
    pytest.param(Record(b"k", b"v", timestamp=1), id="1970"),
    pytest.param(Record(b"k", b"v", timestamp=253_402_300_800_000), id="year 10000"),
    pytest.param(Record(b"k", b"v", timestamp=1_700_000_000_000_000_000), id="nanoseconds"),
]


@pytest.fixture(scope="module")
def mirrored(clusters, tmp_path_factory):
    """Every odd record, one after another in one partition, as written and as arrived."""
    from tests.stories.world import World

    source, target = clusters
    topic = "fidelity"
    create_topic(source.bootstrap_servers, topic)
    written = [param.values[0] for param in RECORDS]
    produce(source.bootstrap_servers, topic, written)
    world = World(tmp_path_factory.mktemp("fidelity"), source, target, [topic])
    world.mirror()
    before = contents(consume_all(source.bootstrap_servers, topic))
    return dict(
        zip(written_ids(), zip(before, contents(world.arrived(topic)), strict=True), strict=True)
    )


def written_ids() -> list[str]:
    return [str(param.id) for param in RECORDS]


@pytest.mark.parametrize("kind", written_ids())
def test_a_record_of_each_kind_arrives_unchanged(mirrored, kind):
    before, after = mirrored[kind]

    assert after == before
