"""A record arrives unchanged, or its partition stops with an error that names it."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from confluent_kafka import Message

from tests.support.brokers import (
    Record,
    consume_all,
    create_topic,
    high_watermarks,
    produce,
    produce_exactly,
)
from tests.support.log_segment import LogRecord, read_log
from tests.support.world import World

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
    pytest.param(Record(b"k", b"v", [("h", b"\xff\0\xfe")]), id="header value that is no text"),
    pytest.param(Record(b"k", b"v", [("\u00e9\u4e2d", b"x")]), id="header key beyond ASCII"),
    pytest.param(Record(b"k", b"v", [(b"\xff\xfe", b"x")]), id="header key not UTF-8"),
    pytest.param(Record(b"k", b"v", [(b"\xff", b"x"), (b"\xfe", None)]), id="keys that look alike"),
    pytest.param(Record(b"k", b"v", [(b"a\0b", b"x"), ("a", b"y")]), id="header key with NUL"),
    pytest.param(Record(b"\x00\xff\xfe", b"\x00" * 3), id="bytes that are no text"),
    pytest.param(Record(b"k", bytes(900_000)), id="900 KB value"),
    pytest.param(Record(b"k", b"v", timestamp=-1), id="no timestamp"),
    pytest.param(Record(b"k", b"v", timestamp=0), id="timestamp 0"),
    pytest.param(Record(b"k", b"v", timestamp=1), id="1970"),
    pytest.param(Record(b"k", b"v", timestamp=253_402_300_800_000), id="year 10000"),
    pytest.param(Record(b"k", b"v", timestamp=1_700_000_000_000_000_000), id="nanoseconds"),
]
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
FEW = [Record(b"k%d" % i, b"v" * 500, [("h", b"%d" % i)]) for i in range(20)]
LARGE = Record(b"k", bytes(range(256)) * 40_000)


class Mirrored(NamedTuple):
    """A world whose topics were mirrored."""

    world: World

    def logs(self, topic: str) -> list[tuple[LogRecord, LogRecord]]:
        """Return each record as read from the source's and from the target's log file."""
        before = read_log(self.world.source.home, topic)
        after = read_log(self.world.target.home, self.world.remote(topic))
        return list(zip(before, after, strict=True))

    def shown(self, topic: str) -> tuple[list[Message], list[Message]]:
        """Return the records of *topic* that consumers of source and of target read."""
        before = consume_all(self.world.source.bootstrap_servers, topic)
        return before, self.world.arrived(topic)


@pytest.fixture(scope="module")
def mirrored(clusters, tmp_path_factory):
    """All RECORDS, in order in one partition, and topics with special configs."""
    source, target = clusters
    servers = source.bootstrap_servers
    create_topic(servers, "fidelity")
    produce_exactly(servers, "fidelity", [param.values[0] for param in RECORDS])
    create_topic(servers, "stamped", message_timestamp_type="LogAppendTime")
    produce(servers, "stamped", [r._replace(timestamp=1_000) for r in FEW])
    create_topic(servers, "large", max_message_bytes=12_000_000)
    produce_exactly(servers, "large", [FEW[0], LARGE, FEW[1]])
    for codec in CODECS:
        create_topic(servers, f"codec-{codec}", compression_type=codec)
        produce(servers, f"codec-{codec}", FEW)
    topics = ["fidelity", "stamped", "large", *(f"codec-{codec}" for codec in CODECS)]
    world = World(tmp_path_factory.mktemp("fidelity"), source, target, topics)
    world.mirror()
    return Mirrored(world)


@pytest.fixture(scope="module")
def odd(mirrored):
    """Each of RECORDS by its id: as given, in the source's log, in the target's log."""
    kinds = [str(param.id) for param in RECORDS]
    given = [param.values[0] for param in RECORDS]
    return dict(zip(kinds, zip(given, mirrored.logs("fidelity"), strict=True), strict=True))


@pytest.mark.parametrize("kind", [str(param.id) for param in RECORDS])
def test_a_record_of_each_kind_arrives_unchanged(odd, kind):
    given, (before, after) = odd[kind]

    assert after[1:] == before[1:]
    assert before[2:] == (given.key, given.value, [(_bytes(k), v) for k, v in given.headers])
    assert given.timestamp in (None, before.timestamp)


def _bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


def test_records_with_timestamps_of_their_broker_keep_them(mirrored):
    before, after = mirrored.shown("stamped")

    assert {m.timestamp()[0] for m in before} == {2}
    assert [m.timestamp()[1] for m in after] == [m.timestamp()[1] for m in before]
    assert [(m.key(), m.value()) for m in after] == [(r.key, r.value) for r in FEW]


def test_a_record_of_10_mb_arrives_if_its_topic_allows_it(mirrored):
    _, after = mirrored.shown("large")

    assert [(m.key(), m.value()) for m in after] == [
        (r.key, r.value) for r in (FEW[0], LARGE, FEW[1])
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_each_compression_arrive_unchanged(mirrored, codec):
    before, after = mirrored.shown(f"codec-{codec}")

    read = [
        [(m.key(), m.value(), m.headers(), m.timestamp()) for m in side] for side in (before, after)
    ]
    assert read[0] == read[1]
    assert len(read[0]) == len(FEW)


@pytest.mark.story
def test_verify_finds_every_unusual_record_equal_on_all_sides(mirrored):
    done = mirrored.world.cli("verify", "--format", "json")

    found = json.loads(done.stdout)
    records = len(RECORDS) + len(FEW) * (1 + len(CODECS)) + 3
    assert [found[n] for n in ("records", "lost", "duplicated", "reordered", "altered")] == [
        records, 0, 0, 0, 0
    ]  # fmt: skip
    assert done.returncode == 0


@pytest.mark.parametrize("stamp", [5, 0], ids=["plain", "exact"])
def test_a_remote_topic_that_sets_its_own_timestamps_stops_with_an_error(world, names, stamp):
    topic = names()
    story = world(topic)
    create_topic(story.source.bootstrap_servers, topic)
    create_topic(
        story.target.bootstrap_servers, story.remote(topic), message_timestamp_type="LogAppendTime"
    )
    produce_exactly(story.source.bootstrap_servers, topic, [Record(b"k", b"v", timestamp=stamp)])

    done = story.cli("run", "--until-caught-up")

    assert done.returncode == 1
    assert f"{story.remote(topic)}[0]" in done.stderr + done.stdout
    assert "LogAppendTime" in done.stderr + done.stdout
    assert story.arrived(topic) == []
    assert high_watermarks(story.source.bootstrap_servers, topic) == {0: 1}
