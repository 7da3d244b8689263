"""A cluster's administration client: made when first used, kept, and its silence explained."""

from __future__ import annotations

import concurrent.futures
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Uuid
from confluent_kafka.admin import AdminClient

from schemas.errors import ConfigError, DeltamirrorError, RequestRefusedError, UnreachableError
from schemas.topic_partition import NO_TOPIC_ID

Answer = TypeVar("Answer")

WAIT_S = 10.0

# What a client reports when nobody answered, the most telling first: a login that fails shows in
# the answer itself only as "transport failure".
SILENCE = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._RESOLVE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._DESTROY,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
)


class AdminSession:
    """One administration client of the cluster *alias*; every answer waits at most *wait_s*."""

    def __init__(self, alias: str, settings: Mapping[str, Any]) -> None:
        self.alias = alias
        self.servers = str(settings.get("bootstrap.servers", ""))
        # Whatever the client would log as an error comes to `error_cb` too.
        self.settings: dict[str, Any] = {"log_level": 2, **settings}
        self._client: AdminClient | None = None
        self._lock = Lock()
        self._told: deque[KafkaError] = deque(maxlen=32)

    @property
    def client(self) -> AdminClient:
        """Return the client, made at first use. Raises ConfigError on settings that are wrong."""
        with self._lock:
            if self._client is None:
                try:
                    self._client = AdminClient({**self.settings, "error_cb": self._told.append})
                except KafkaException as failure:
                    raise ConfigError(f"cluster {self.alias}: {_error_of(failure).str()}") from None
            return self._client

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Turn what the client raises inside into UnreachableError or RequestRefusedError."""
        try:
            yield
        except KafkaException as failure:
            raise self.explained(_error_of(failure), what) from None
        except (TimeoutError, concurrent.futures.TimeoutError):
            raise self._unreachable("no answer in time") from None
        else:
            self._told.clear()

    def answer(
        self, future: concurrent.futures.Future[Answer], what: str, timeout_s: float = WAIT_S
    ) -> Answer:
        """Return what *future* brings. Raises UnreachableError or RequestRefusedError."""
        with self.asking(what):
            # The request itself has ended by then; the second is for the client's own threads.
            return future.result(timeout=timeout_s + 1)

    def explained(self, error: KafkaError, what: str) -> DeltamirrorError:
        """Return the error that a person should read where *what* was asked."""
        if error.code() in SILENCE:
            return self._unreachable(error.str())
        return RequestRefusedError(self.alias, what, error.name(), error.str())

    def _unreachable(self, reason: str) -> UnreachableError:
        told = self._tellings()
        best = min(told, key=lambda error: SILENCE.index(error.code()), default=None)
        if best is not None:
            reason = f"{best.str()} ({best.name()})"
        return UnreachableError(self.alias, self.servers, reason)

    def _tellings(self) -> list[KafkaError]:
        """Return what the client reported beside its answers since the last good one."""
        if self._client is not None:
            while self._client.poll(0):
                pass
        return [error for error in self._told if error.code() in SILENCE]


def patiently(
    ask: Callable[[], Answer], *, codes: tuple[str, ...], within_s: float, pause_s: float = 0.02
) -> Answer:
    """Return what *ask* returns, asked again while it is refused with one of *codes*.

    Raises what the last try raised when *within_s* seconds are over.
    """
    give_up_at = time.monotonic() + within_s
    while True:
        try:
            return ask()
        except RequestRefusedError as refused:
            if refused.code not in codes or time.monotonic() >= give_up_at:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.25)


def topic_id_text(topic_id: Uuid | None) -> str:
    """Return a topic id as Kafka's own tools write it, or `none` for the zero id.

    The client writes `/` and `+` where Kafka writes `_` and `-`.
    """
    text = "" if topic_id is None else str(topic_id).replace("/", "_").replace("+", "-")
    return text if text.strip("A") else NO_TOPIC_ID


def _error_of(failure: KafkaException) -> KafkaError:
    error = failure.args[0]
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(error))
