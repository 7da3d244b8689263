"""Loops over librdkafka's records, compiled: Python takes a microsecond for each call of each.

Compiled code knows a C function by a name and finds it where librdkafka's own are, so that what was
compiled once is kept on disk (numba) for the next process.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding
from numba import njit, types

from resources.c import address_of

Words = npt.NDArray[np.int64]

MESSAGE = np.dtype(
    [
        ("err", np.int32),
        ("topic", np.int64),
        ("partition", np.int32),
        ("payload", np.int64),
        ("len", np.int64),
        ("key", np.int64),
        ("key_len", np.int64),
        ("offset", np.int64),
        ("private", np.int64),
    ],
    align=True,
)
"""rd_kafka_message_t, with addresses as numbers."""

_MESSAGE_SIZE = MESSAGE.itemsize


def _function(name: str, address: int, signature: Any) -> Any:  # noqa: ANN401 - numba's types
    binding.add_symbol(name, address)
    return types.ExternalFunction(name, signature)


def _rdkafka(name: str, signature: Any) -> Any:  # noqa: ANN401 - numba's types
    return _function(f"rd_kafka_{name}", address_of(f"rd_kafka_{name}"), signature)


_int, _long, _address = types.int32, types.int64, types.intp

_timestamp = _rdkafka("message_timestamp", _long(_address, _address))
_leader_epoch = _rdkafka("message_leader_epoch", _int(_address))
_headers = _rdkafka("message_headers", _int(_address, _address))
_destroy = _rdkafka("message_destroy", types.void(_address))
_copy = _function(
    "memcpy",
    ctypes.cast(ctypes.CDLL(None).memcpy, ctypes.c_void_p).value or 0,
    _address(_address, _address, _long),
)


@njit(nogil=True, cache=True)
def describe(
    messages: Words,
    count: int,
    fields: npt.NDArray[np.void],
    stamps: Words,
    kinds: npt.NDArray[np.int32],
    epochs: npt.NDArray[np.int32],
    headers: Words,
) -> None:
    """Fill in what the first *count* of *messages*, addresses, are: a row of each array for each.

    *headers* are the addresses of librdkafka's lists of headers, 0 where a record has none. Rows of
    what is not a record (`err`) are left as they are but for *fields*.
    """
    for i in range(count):
        _copy(fields.ctypes.data + i * _MESSAGE_SIZE, messages[i], _MESSAGE_SIZE)
        if fields[i].err == 0:
            stamps[i] = _timestamp(messages[i], kinds.ctypes.data + i * 4)
            epochs[i] = _leader_epoch(messages[i])
            if _headers(messages[i], headers.ctypes.data + i * 8) != 0:
                headers[i] = 0


@njit(nogil=True, cache=True)
def gather(addresses: Words, lengths: Words, into: npt.NDArray[np.uint8]) -> None:
    """Copy *lengths* bytes from each of *addresses* one behind the other."""
    at = into.ctypes.data
    for i in range(len(addresses)):
        _copy(at, addresses[i], lengths[i])
        at += lengths[i]


@njit(nogil=True, cache=True)
def destroy(messages: Words, count: int) -> None:
    """Give the first *count* of *messages* back to librdkafka."""
    for i in range(count):
        _destroy(messages[i])
