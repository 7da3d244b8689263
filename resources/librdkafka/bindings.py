"""librdkafka's C interface: the one library that confluent-kafka has loaded already."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

# The extension's own symbols lead to the librdkafka that it has loaded.
_LIBRARY = ctypes.CDLL(cimpl.__file__)


def rd_kafka(name: str, returns: Any, *takes: Any) -> Any:  # noqa: ANN401 - C types
    """Return librdkafka's function `rd_kafka_<name>`."""
    function = _LIBRARY[f"rd_kafka_{name}"]
    function.restype, function.argtypes = returns, takes
    return function


def address_of(name: str) -> int:
    """Return where librdkafka's function *name* lies."""
    return ctypes.cast(_LIBRARY[name], c_void_p).value or 0


class Partition(ctypes.Structure):
    """The beginning and size of rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


# rd_kafka_type_t
PRODUCER, CONSUMER = 0, 1

_conf_new = rd_kafka("conf_new", c_void_p)
_conf_set = rd_kafka("conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
_conf_destroy = rd_kafka("conf_destroy", None, c_void_p)
_new = rd_kafka("new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)

headers_new = rd_kafka("headers_new", c_void_p, c_size_t)
headers_destroy = rd_kafka("headers_destroy", None, c_void_p)
header_add = rd_kafka("header_add", c_int, c_void_p, c_char_p, c_ssize_t, c_char_p, c_ssize_t)

_error_code = rd_kafka("error_code", c_int, c_void_p)
_error_string = rd_kafka("error_string", c_char_p, c_void_p)
_error_is_fatal = rd_kafka("error_is_fatal", c_int, c_void_p)
_error_is_retriable = rd_kafka("error_is_retriable", c_int, c_void_p)
_error_requires_abort = rd_kafka("error_txn_requires_abort", c_int, c_void_p)
_error_destroy = rd_kafka("error_destroy", None, c_void_p)


def new_conf(settings: Mapping[str, Any]) -> int:
    """Return a configuration with *settings*. Raises KafkaException on those that are wrong."""
    told = ctypes.create_string_buffer(512)
    conf: int = _conf_new()
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if _conf_set(conf, name.encode(), text.encode(), told, len(told)) != 0:
            _conf_destroy(conf)
            raise kafka_exception(KafkaError._INVALID_ARG, told.value)
    return conf


def new_client(kind: int, conf: int) -> int:
    """Return a client with *conf*, which it owns. Raises KafkaException where it cannot be."""
    told = ctypes.create_string_buffer(512)
    client: int | None = _new(kind, conf, told, len(told))
    if not client:
        _conf_destroy(conf)
        raise kafka_exception(KafkaError._INVALID_ARG, told.value)
    return client


def kafka_exception(code: int, why: bytes) -> KafkaException:
    """Return the exception for *code*, which librdkafka explains with *why*."""
    return KafkaException(KafkaError(code, why.decode(errors="replace")))


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
