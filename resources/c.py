"""librdkafka's C interface: the one library that confluent-kafka has loaded already."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_ssize_t, c_void_p
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

# The extension's own symbols lead to the librdkafka that it has loaded.
_LOADED = ctypes.CDLL(cimpl.__file__)


def c(name: str, returns: Any, *takes: Any) -> Any:  # noqa: ANN401 - C types
    """Return librdkafka's function `rd_kafka_<name>`."""
    function = _LOADED[f"rd_kafka_{name}"]
    function.restype, function.argtypes = returns, takes
    return function


headers_new = c("headers_new", c_void_p, c_size_t)
headers_destroy = c("headers_destroy", None, c_void_p)
header_add = c("header_add", c_int, c_void_p, c_char_p, c_ssize_t, c_char_p, c_ssize_t)

_error_code = c("error_code", c_int, c_void_p)
_error_string = c("error_string", c_char_p, c_void_p)
_error_is_fatal = c("error_is_fatal", c_int, c_void_p)
_error_is_retriable = c("error_is_retriable", c_int, c_void_p)
_error_requires_abort = c("error_txn_requires_abort", c_int, c_void_p)
_error_destroy = c("error_destroy", None, c_void_p)


def expect_no_error(error: int | None) -> None:
    """Raise what librdkafka's *error* says as KafkaException, with its flags; None is none."""
    if not error:
        return
    told = KafkaError(
        _error_code(error),
        _error_string(error).decode(errors="replace"),
        fatal=bool(_error_is_fatal(error)),
        retriable=bool(_error_is_retriable(error)),
        txn_requires_abort=bool(_error_requires_abort(error)),
    )
    _error_destroy(error)
    raise KafkaException(told)
