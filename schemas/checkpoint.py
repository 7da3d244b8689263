"""A group's translated offset, in MirrorMaker 2's wire format (version 0).

Records go to partition 0 of `<source>.checkpoints.internal` on the target. MirrorMaker 2's readers
fail for every group on a record without a value: never write a tombstone there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from schemas.wire import read_string, string

VERSION = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where *group* resumes: *topic* is the remote topic, by its name on the target."""

    group: str
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""

    @property
    def key(self) -> bytes:
        """Return the record's key: group, topic, partition; a later checkpoint replaces it."""
        return string(self.group) + string(self.topic) + struct.pack(">i", self.partition)

    @property
    def value(self) -> bytes:
        """Return the record's value: version, both offsets, metadata."""
        offsets = struct.pack(">hqq", VERSION, self.upstream_offset, self.downstream_offset)
        return offsets + string(self.metadata)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Checkpoint:
        """Return the checkpoint of a record. Raises ValueError where it is none."""
        group, at = read_string(key, 0)
        topic, at = read_string(key, at)
        try:
            (partition,) = struct.unpack_from(">i", key, at)
            _, upstream, downstream = struct.unpack_from(">hqq", value)
        except struct.error as error:
            raise ValueError(f"not a checkpoint: {error}") from error
        metadata, _ = read_string(value, 18)
        return cls(group, topic, partition, upstream, downstream, metadata)
