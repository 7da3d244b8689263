"""Read and write the bytes of a broker's log file, without a Kafka client."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BATCH = struct.Struct(">qiibIhiqqqhii")  # Kafka's record batch, magic 2


class LogRecord(NamedTuple):
    """A record of the log file; times are in ms since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def read_log(home: Path, topic: str, partition: int = 0) -> list[LogRecord]:
    """Return the records of *topic* in the folder of a broker; no batch may be compressed."""
    found: list[LogRecord] = []
    for file in sorted((home / "data" / f"{topic}-{partition}").glob("*.log")):
        content, at = file.read_bytes(), 0
        while at + BATCH.size <= len(content):
            first, length, _, magic, _, attributes, _, stamp, *_ = BATCH.unpack_from(content, at)
            assert (magic, attributes & 0x7) == (2, 0)
            records = content[at + BATCH.size : at + 12 + length]
            if not attributes & 0x20:  # a transaction's marker
                found += _records(records, first, stamp)
            at += 12 + length
    return found


def _records(content: bytes, first: int, stamp: int) -> Iterator[LogRecord]:
    bytes_ = _Bytes(content)
    while bytes_.at < len(content):
        bytes_.number()
        bytes_.at += 1
        timestamp, offset = stamp + bytes_.number(), first + bytes_.number()
        key, value = bytes_.data(), bytes_.data()
        headers = [(bytes_.data() or b"", bytes_.data()) for _ in range(bytes_.number())]
        yield LogRecord(offset, timestamp, key, value, headers)


class _Bytes:
    """A record's fields one after another."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def number(self) -> int:
        """Return a zigzag varint."""
        value = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def data(self) -> bytes | None:
        """Return bytes after their length; -1 is null."""
        size = self.number()
        if size < 0:
            return None
        self.at += size
        return self.content[self.at - size : self.at]
