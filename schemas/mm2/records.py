"""Encode and decode MirrorMaker 2's checkpoints, heartbeats and offset syncs.

Numbers are big-endian; a string has an int16 length before it. `read` raises ValueError if a record
is of another kind.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAX_STRING_BYTES = 32_767


def encode_string(text: str) -> bytes:
    """Return the length of *text* and its UTF-8 bytes. Raises ValueError above 32,767 bytes."""
    data = text.encode()
    if len(data) > MAX_STRING_BYTES:
        raise ValueError(f"{len(data)} bytes are more than the {MAX_STRING_BYTES} a field can hold")
    return struct.pack(">h", len(data)) + data


def decode_string(data: bytes, at: int) -> tuple[str, int]:
    """Return the string at byte *at* and the position after it. Raises ValueError if truncated."""
    try:
        (length,) = struct.unpack_from(">h", data, at)
    except struct.error as error:
        raise ValueError(f"no string at byte {at} of {len(data)}") from error
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise ValueError(f"a string of {length} bytes at byte {at} of {len(data)}")
    return data[at + 2 : end].decode(), end


def _unpack(kind: str, layout: str, data: bytes, at: int = 0) -> tuple[int, ...]:
    try:
        return struct.unpack_from(layout, data, at)
    except struct.error as error:
        raise ValueError(f"not {kind}: {error}") from error


VERSION = 0
"""Version of MirrorMaker 2's checkpoints and heartbeats."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A group's checkpoint; *topic* is the remote topic's name on the target."""

    group: str
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""

    @property
    def key(self) -> bytes:
        """Return the record's key; a later checkpoint of the group and partition replaces it."""
        names = encode_string(self.group) + encode_string(self.topic)
        return names + struct.pack(">i", self.partition)

    @property
    def value(self) -> bytes:
        offsets = struct.pack(">hqq", VERSION, self.upstream_offset, self.downstream_offset)
        return offsets + encode_string(self.metadata)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Checkpoint:
        group, at = decode_string(key, 0)
        topic, at = decode_string(key, at)
        (partition,) = _unpack("a checkpoint", ">i", key, at)
        _, upstream, downstream = _unpack("a checkpoint", ">hqq", value)
        metadata, _ = decode_string(value, 18)
        return cls(group, topic, partition, upstream, downstream, metadata)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat of the flow from *source* to *target*; the time is in ms since 1970."""

    source: str
    target: str
    timestamp_ms: int

    @property
    def key(self) -> bytes:
        return encode_string(self.source) + encode_string(self.target)

    @property
    def value(self) -> bytes:
        return struct.pack(">hq", VERSION, self.timestamp_ms)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Heartbeat:
        source, at = decode_string(key, 0)
        target, _ = decode_string(key, at)
        _, timestamp_ms = _unpack("a heartbeat", ">hq", value)
        return cls(source, target, timestamp_ms)


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """Upstream and downstream offset of a record; *topic* is the topic's name on the source."""

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int

    @property
    def key(self) -> bytes:
        """Return the record's key; a later sync of the partition replaces it."""
        return encode_string(self.topic) + struct.pack(">i", self.partition)

    @property
    def value(self) -> bytes:
        return struct.pack(">qq", self.upstream_offset, self.downstream_offset)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> OffsetSync:
        topic, at = decode_string(key, 0)
        (partition,) = _unpack("an offset sync", ">i", key, at)
        upstream, downstream = _unpack("an offset sync", ">qq", value)
        return cls(topic, partition, upstream, downstream)
