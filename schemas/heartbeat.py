"""A record sent through a flow to see it arrive, in MirrorMaker 2's wire format (version 0).

Records go to partition 0 of the topic `heartbeats`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from schemas.wire import read_string, string

VERSION = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life of the flow *source* to *target* at a time in ms since 1970."""

    source: str
    target: str
    timestamp_ms: int

    @property
    def key(self) -> bytes:
        """Return the record's key: the aliases of both clusters."""
        return string(self.source) + string(self.target)

    @property
    def value(self) -> bytes:
        """Return the record's value: version and time."""
        return struct.pack(">hq", VERSION, self.timestamp_ms)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Heartbeat:
        """Return the heartbeat of a record. Raises ValueError where it is none."""
        source, at = read_string(key, 0)
        target, _ = read_string(key, at)
        try:
            _, timestamp_ms = struct.unpack_from(">hq", value)
        except struct.error as error:
            raise ValueError(f"not a heartbeat: {error}") from error
        return cls(source, target, timestamp_ms)
