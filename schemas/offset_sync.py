"""Where a source record is on the target, in MirrorMaker 2's wire format (it has no version).

Records go to partition 0 of `mm2-offset-syncs.<alias>.internal`. MirrorMaker 2 stops translating
at a record without a value: never write a tombstone there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from schemas.wire import read_string, string


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """The record at *upstream_offset* of *topic*, by its name on the source, has this place."""

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int

    @property
    def key(self) -> bytes:
        """Return the record's key: topic and partition; a later sync replaces it."""
        return string(self.topic) + struct.pack(">i", self.partition)

    @property
    def value(self) -> bytes:
        """Return the record's value: both offsets."""
        return struct.pack(">qq", self.upstream_offset, self.downstream_offset)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> OffsetSync:
        """Return the sync of a record. Raises ValueError where it is none."""
        topic, at = read_string(key, 0)
        try:
            (partition,) = struct.unpack_from(">i", key, at)
            upstream, downstream = struct.unpack_from(">qq", value)
        except struct.error as error:
            raise ValueError(f"not an offset sync: {error}") from error
        return cls(topic, partition, upstream, downstream)
