"""The primitives of MirrorMaker 2's internal records: big-endian, strings with an int16 length."""

from __future__ import annotations

import struct

LONGEST = 32_767


def string(text: str) -> bytes:
    """Return *text* as UTF-8 behind its length. Raises ValueError: over 32,767 bytes."""
    data = text.encode()
    if len(data) > LONGEST:
        raise ValueError(f"{len(data)} bytes are more than the {LONGEST} a field can hold")
    return struct.pack(">h", len(data)) + data


def read_string(data: bytes, at: int) -> tuple[str, int]:
    """Return the string at *at* and the place behind it. Raises ValueError where it is cut."""
    try:
        (length,) = struct.unpack_from(">h", data, at)
    except struct.error as error:
        raise ValueError(f"no string at byte {at} of {len(data)}") from error
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise ValueError(f"a string of {length} bytes at byte {at} of {len(data)}")
    return data[at + 2 : end].decode(), end
