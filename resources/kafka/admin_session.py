"""Create a cluster's AdminClient when first used, cache it, and explain its timeouts."""

from __future__ import annotations

import concurrent.futures
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Uuid
from confluent_kafka.admin import AdminClient

from resources.kafka.connection_diagnosis import diagnose
from resources.librdkafka.bindings import never_free
from resources.librdkafka.group_offsets_client import GroupClient
from schemas.errors.base import DeltamirrorError, RequestRefusedError
from schemas.errors.configuration import ClientSettingsError
from schemas.errors.environment import PermissionMissingError, UnreachableError
from schemas.kafka.acl import Permission
from schemas.kafka.partition import NO_TOPIC_ID

Answer = TypeVar("Answer")

REQUEST_TIMEOUT_S = 10.0

RENEW_CLIENT_AFTER_S = 15.0
"""Seconds without an answer after which a new client is tried; doubled for every next client."""

# Errors of a client that got no answer, the most specific first. For example, the answer to a
# request shows a failed login only as "transport failure".
UNREACHABLE_CODES = (
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
    """The clients of the cluster *alias* for administration and for groups' offsets."""

    def __init__(self, alias: str, settings: Mapping[str, Any]) -> None:
        self.alias = alias
        self.servers = str(settings.get("bootstrap.servers", ""))
        # `log_level` 2: the client's errors are passed to `error_cb`, so it need not log them.
        self.settings: dict[str, Any] = {"log_level": 2, **settings}
        self._cached: _CachedClients | None = None

    @property
    def client(self) -> AdminClient:
        """Return the client, created at first use. Raises ClientSettingsError."""
        return self._cached_client().client

    @property
    def group_client(self) -> GroupClient:
        """Return the client for committed offsets of groups, created at first use.

        Raises ClientSettingsError.
        """
        cached = self._cached_client()
        with _cache_lock:
            if cached.group_client is None:
                cached.group_client = GroupClient(self.settings)
            return cached.group_client

    def renew_group_client(self, former: GroupClient) -> None:
        """Drop *former*, which did not answer; the next request uses a new client."""
        cached = self._cached_client()
        with _cache_lock:
            # Another thread may have dropped it already.
            if cached.group_client is former:
                cached.group_client = None

    def _cached_client(self) -> _CachedClients:
        if self._cached is None:
            try:
                self._cached = _cached_clients(self.settings)
            except KafkaException as failure:
                raise ClientSettingsError(self.alias, reason=_kafka_error(failure).str()) from None
        return self._cached

    @contextmanager
    def converted_errors(self, what: str, *needs: Permission) -> Iterator[None]:
        """Convert the client's errors in the block to UnreachableError or RequestRefusedError.

        *what* completes "the cluster refused to ...". If one of the permissions *needs* is missing,
        the error is PermissionMissingError.
        """
        try:
            yield
        except KafkaException as failure:
            raise self.error_for(_kafka_error(failure), what, *needs) from None
        except (TimeoutError, concurrent.futures.TimeoutError):
            raise self._unreachable("no answer in time") from None
        else:
            if self._cached is not None:
                self._cached.record_answer()

    def wait_result(
        self, future: concurrent.futures.Future[Answer], what: str, *needs: Permission
    ) -> Answer:
        """Return the result of *future*. Raises as `converted_errors` does."""
        with self.converted_errors(what, *needs):
            # The request has timed out by then; the client's threads get another second.
            return future.result(timeout=REQUEST_TIMEOUT_S + 1)

    def error_for(self, error: KafkaError, what: str, *needs: Permission) -> DeltamirrorError:
        """Return deltamirror's error for the client's *error* of the request *what*."""
        if error.code() in UNREACHABLE_CODES:
            return self._unreachable(error.str())
        for permission in needs:
            if permission.is_missed_by(error.name()):
                return PermissionMissingError(self.alias, what, permission)
        return RequestRefusedError(self.alias, action=what, code=error.name(), reason=error.str())

    def _unreachable(self, reason: str) -> UnreachableError:
        reported = self._reported_errors()
        best = min(reported, key=lambda error: UNREACHABLE_CODES.index(error.code()), default=None)
        if self._cached is not None:
            self._cached.record_timeout()
        if best is None:
            return UnreachableError(self.alias, servers=self.servers, reason=reason)
        diagnosis = diagnose(self.settings, best)
        if diagnosis is not None:
            return diagnosis.kind(self.alias, servers=self.servers, reason=diagnosis.reason)
        return UnreachableError(
            self.alias, servers=self.servers, reason=f"{best.str()} ({best.name()})"
        )

    def _reported_errors(self) -> list[KafkaError]:
        """Return the errors that the client passed to `error_cb` since the last answer."""
        if self._cached is None:
            return []
        while self._cached.client.poll(0):
            pass
        return [error for error in self._cached.reported if error.code() in UNREACHABLE_CODES]


@dataclass
class _CachedClients:
    """The clients with *settings*, and the time since which the AdminClient got no answer.

    After a broker was frozen or down, a client may wait for the controller permanently (seen with
    librdkafka 2.16), while a new client gets an answer at once. No client is ever destroyed, so
    one without an answer is replaced only after RENEW_CLIENT_AFTER_S, the next one after twice that
    time, and so on.
    """

    settings: dict[str, Any]
    client: AdminClient
    reported: deque[KafkaError]
    group_client: GroupClient | None = None
    unanswered_since: float | None = None
    renew_after_s: float = RENEW_CLIENT_AFTER_S

    def record_answer(self) -> None:
        """Forget reported errors, after an answer."""
        self.reported.clear()
        self.unanswered_since, self.renew_after_s = None, RENEW_CLIENT_AFTER_S

    def record_timeout(self) -> None:
        """Record a request without an answer; create a new client if the time is over."""
        now = time.monotonic()
        if self.unanswered_since is None:
            self.unanswered_since = now
        elif now - self.unanswered_since > self.renew_after_s:
            self.client = _new_client(self.settings, self.reported)
            self.unanswered_since, self.renew_after_s = now, 2 * self.renew_after_s


_cached: dict[tuple[object, ...], _CachedClients] = {}
_cache_lock = Lock()


def _cached_clients(settings: Mapping[str, Any]) -> _CachedClients:
    """Return this process's clients with *settings*. An AdminClient is never destroyed.

    Destroying a client waits for its threads. They never end (librdkafka 2.16) if a request to a
    group's coordinator timed out and the broker is down since: the whole process would hang during
    a failover. So there is one client per settings, and it stays.
    """
    key = (os.getpid(), *sorted(settings.items()))
    with _cache_lock:
        if key not in _cached:
            reported: deque[KafkaError] = deque(maxlen=32)
            _cached[key] = _CachedClients(dict(settings), _new_client(settings, reported), reported)
        return _cached[key]


def _new_client(settings: Mapping[str, Any], reported: deque[KafkaError]) -> AdminClient:
    reporting: dict[str, Any] = {**settings, "error_cb": reported.append}
    client = AdminClient(reporting)
    never_free(client)
    return client


def retry_until(
    ask: Callable[[], Answer], *, codes: tuple[str, ...], within_s: float, pause_s: float = 0.02
) -> Answer:
    """Call *ask* until it is not refused with one of *codes*; return its result.

    After *within_s* seconds the last call's error is raised. *pause_s* is the first pause between
    calls; it doubles up to 0.25 s.
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

    The client writes `/` and `+` instead of Kafka's `_` and `-`.
    """
    text = "" if topic_id is None else str(topic_id).replace("/", "_").replace("+", "-")
    return text if text.strip("A") else NO_TOPIC_ID


def _kafka_error(failure: KafkaException) -> KafkaError:
    error = failure.args[0]
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(error))
