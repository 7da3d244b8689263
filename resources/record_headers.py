"""The headers of records read, with every byte of their keys.

The client's own way is quick and right for keys of plain ASCII. Which records have others is seen
in memory before it is asked (see `resources.client_memory`); those are read from there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p

import numpy as np
from confluent_kafka import Message

from resources.c import c
from resources.client_memory import (
    MESSAGE_HEADERS,
    NAME,
    NAME_SIZE,
    Words,
    header_addresses,
    is_known,
    words,
)

Pairs = list[tuple[str, bytes | None]]

LONG = 64
"""Bytes of a key up to which it is looked at here: almost all are shorter."""

# Each byte of a word: 1, its highest bit, and some letter.
_ONES = np.int64(0x0101010101010101)
_HIGH = np.int64(-0x7F7F7F7F7F7F7F80)
_LETTERS = np.int64(0x6161616161616161)
# The bytes of a word that belong to a key of which 0, 1, .. 8 bytes are left.
_INSIDE = np.array([(1 << 8 * n) - 1 for n in range(8)] + [-1], np.int64)

_header_get_all = c(
    "header_get_all", c_int, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p), c_void_p
)
_OUT_OF_HEADERS = -156  # RD_KAFKA_RESP_ERR__NOENT


def read_headers(
    messages: Sequence[Message],
) -> tuple[list[Pairs | None], dict[int, list[bytes]], int]:
    """Return the headers of each record, exact keys by row where some are not UTF-8, and a count.

    The count is that of the leading records whose headers could be read: all of them, unless the
    client is one whose memory is not known. Nobody may have asked *messages* for headers before.
    """
    found: list[Pairs | None] = [None] * len(messages)
    if not is_known():
        return found, {}, _without_headers(messages)
    start = np.fromiter(map(id, messages), np.int64, len(messages))
    lists = words(start + MESSAGE_HEADERS)
    having = np.flatnonzero(lists)
    if not len(having):
        return found, {}, len(messages)
    lists = lists[having]
    odd = _odd(lists)
    for i in having[~odd].tolist():
        found[i] = messages[i].headers()
    raw: dict[int, list[bytes]] = {}
    for i, at in zip(having[odd].tolist(), lists[odd].tolist(), strict=True):
        pairs = _exact(at)
        found[i] = [(key.decode(errors="replace"), value) for key, value in pairs]
        if not all(_is_text(key) for key, _ in pairs):
            raw[i] = [key for key, _ in pairs]
    return found, raw, len(messages)


def _odd(lists: Words) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which *lists* have a key with a NUL or a byte that is not ASCII, or a long one."""
    headers, counts = header_addresses(lists)
    sizes = words(headers + NAME_SIZE)
    odd = sizes > LONG
    names = headers + NAME
    for start in range(0, min(int(sizes.max(initial=0)), LONG), 8):
        here = np.flatnonzero(sizes > start)
        inside = _INSIDE[np.minimum(sizes[here] - start, 8)]
        # What follows a key is its NUL and its value.
        word = (words(names[here] + start) & inside) | (_LETTERS & ~inside)
        odd[here] |= ((word | (word - _ONES)) & _HIGH) != 0
    owners = np.repeat(np.arange(len(lists)), counts)
    found = np.zeros(len(lists), np.bool_)
    found[owners[odd]] = True
    return found


def _exact(headers: int) -> list[tuple[bytes, bytes | None]]:
    """Return all of librdkafka's list *headers* as bytes."""
    pairs: list[tuple[bytes, bytes | None]] = []
    name, value, size = c_void_p(), c_void_p(), c_size_t()
    while True:
        code = _header_get_all(headers, len(pairs), byref(name), byref(value), byref(size))
        if code == _OUT_OF_HEADERS:
            return pairs
        start = name.value or 0
        name_size = c_size_t.from_address(start - NAME + NAME_SIZE).value
        key = ctypes.string_at(start, name_size)
        pairs.append((key, ctypes.string_at(value.value, size.value) if value.value else None))


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _without_headers(messages: Sequence[Message]) -> int:
    """Return how many of *messages* come before the first that has headers."""
    for i, message in enumerate(messages):
        try:
            if message.headers():
                return i
        except (SystemError, UnicodeDecodeError):
            return i
    return len(messages)
