"""Records in message formats 0 and 1, which brokers still read but no longer write (KIP-724)."""

import gzip
import struct
import zlib

import pytest

from tests.support.brokers import create_topic, high_watermarks
from tests.support.log_segment import read_log
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.story]

TOPIC = "old"
GZIP, STAMPED_BY_THE_BROKER = 0x1, 0x8
THEN = 1_500_000_000_000


def _message(offset, magic, key, value, timestamp=None, attributes=0):
    """Return a message as brokers before 0.11 wrote it; only format 1 has a timestamp, in ms."""
    stamp = b"" if magic == 0 else struct.pack(">q", timestamp)
    content = struct.pack(">bb", magic, attributes) + stamp + _data(key) + _data(value)
    checked = struct.pack(">I", zlib.crc32(content)) + content
    return struct.pack(">qi", offset, len(checked)) + checked


def _data(content):
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


LOG = b"".join(
    [
        _message(0, 0, b"k0", b"v0"),
        _message(1, 0, None, b""),
        _message(2, 1, b"k2", None, THEN),
        _message(3, 1, b"k3", b"v3", THEN + 3, STAMPED_BY_THE_BROKER),
        # In a compressed message, format 0 has offsets of the log, format 1 has relative offsets.
        _message(
            5,
            0,
            None,
            gzip.compress(_message(4, 0, b"k4", b"v4") + _message(5, 0, b"k5", b"v5")),
            attributes=GZIP,
        ),
        _message(
            7,
            1,
            None,
            gzip.compress(
                _message(0, 1, b"k6", b"v6", THEN + 6) + _message(1, 1, b"k7", b"v7", THEN + 7)
            ),
            THEN + 7,
            GZIP,
        ),
    ]
)
ARRIVES = [
    (-1, b"k0", b"v0"),
    (-1, None, b""),
    (THEN, b"k2", None),
    (THEN + 3, b"k3", b"v3"),
    (-1, b"k4", b"v4"),
    (-1, b"k5", b"v5"),
    (THEN + 6, b"k6", b"v6"),
    (THEN + 7, b"k7", b"v7"),
]


def test_records_of_message_formats_0_and_1_arrive_unchanged(make_broker, target, tmp_path):
    source = make_broker("old")
    create_topic(source.bootstrap_servers, TOPIC)
    source.stop()
    folder = source.home / "data" / f"{TOPIC}-0"
    (folder / "00000000000000000000.log").write_bytes(LOG)
    for index in folder.glob("*index"):  # the broker creates them again
        index.unlink()
    source.start()
    assert high_watermarks(source.bootstrap_servers, TOPIC) == {0: len(ARRIVES)}

    World(tmp_path, source, target, [TOPIC]).mirror()

    arrived = read_log(target.home, f"us-east.{TOPIC}")
    assert [(r.timestamp, r.key, r.value) for r in arrived] == ARRIVES
