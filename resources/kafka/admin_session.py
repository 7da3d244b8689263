"""Create a cluster's AdminClient when first used, cache it, and explain its timeouts."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Uuid
from confluent_kafka.admin import AdminClient, ClusterMetadata

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

RENEW_CLIENT_AFTER_S = 15.0  # without an answer; doubled for every next client

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

    @cached_property
    def _clients(self) -> _CachedClients:
        try:
            return _cached_clients(self.settings)
        except KafkaException as failure:
            raise ClientSettingsError(self.alias, reason=_kafka_error(failure).str()) from None

    @property
    def client(self) -> AdminClient:
        """Return the client, created at first use. Raises ClientSettingsError."""
        return self._clients.client

    @property
    def group_client(self) -> GroupClient:
        """Return the client for groups' committed offsets, created at first use."""
        clients = self._clients
        with _cache_lock:
            if clients.group_client is None:
                clients.group_client = GroupClient(self.settings)
            return clients.group_client

    def renew_group_client(self, former: GroupClient) -> None:
        """Drop *former*, which did not answer; the next request uses a new client."""
        clients = self._clients
        with _cache_lock:
            if clients.group_client is former:  # another thread may have dropped it already
                clients.group_client = None

    def metadata(self, what: str, timeout_s: float = REQUEST_TIMEOUT_S) -> ClusterMetadata:
        """Return the cluster's metadata. *what* completes "the cluster refused to ..."."""
        # Not `describe_cluster`: a starting broker answers it with an empty list of brokers, and
        # then librdkafka 2.16 aborts the process (an assertion in rd_kafka_admin_response_parse).
        with self.converted_errors(what):
            return self.client.list_topics(timeout=timeout_s)

    @contextmanager
    def converted_errors(self, what: str, needed: Permission | None = None) -> Iterator[None]:
        """Convert the client's errors in the block to UnreachableError or RequestRefusedError.

        *what* completes "the cluster refused to ...". If the permission *needed* is missing, the
        error is PermissionMissingError.
        """
        try:
            yield
        except KafkaException as failure:
            raise self._error_for(_kafka_error(failure), what, needed) from None
        except TimeoutError:
            raise self._unreachable_error("no answer in time") from None
        else:
            self._clients.record_answer()

    def wait_result(
        self, future: Future[Answer], what: str, needed: Permission | None = None
    ) -> Answer:
        """Return the result of *future*. Raises as `converted_errors` does."""
        with self.converted_errors(what, needed):
            # The request has timed out by then; the client's threads get another second.
            return future.result(timeout=REQUEST_TIMEOUT_S + 1)

    def _error_for(
        self, error: KafkaError, what: str, needed: Permission | None
    ) -> DeltamirrorError:
        if error.code() in UNREACHABLE_CODES:
            return self._unreachable_error(error.str())
        if needed is not None and needed.is_missed_by(error.name()):
            return PermissionMissingError(self.alias, what, needed)
        return RequestRefusedError(self.alias, action=what, code=error.name(), reason=error.str())

    def _unreachable_error(self, reason: str) -> UnreachableError:
        """Return the most specific error reported since the last answer, or one with *reason*."""
        clients = self._clients
        while clients.client.poll(0):
            pass  # the client calls `error_cb`
        reported = [error for error in clients.reported if error.code() in UNREACHABLE_CODES]
        clients.record_timeout()
        if not reported:
            return UnreachableError(self.alias, servers=self.servers, reason=reason)
        best = min(reported, key=lambda error: UNREACHABLE_CODES.index(error.code()))
        diagnosis = diagnose(self.settings, best)
        return diagnosis.kind(self.alias, servers=self.servers, reason=diagnosis.reason)


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


def topic_id_text(topic_id: Uuid | None) -> str:
    """Return a topic id as Kafka's own tools write it, or `none` for the zero id.

    The client writes `/` and `+` instead of Kafka's `_` and `-`.
    """
    text = "" if topic_id is None else str(topic_id).replace("/", "_").replace("+", "-")
    return text if text.strip("A") else NO_TOPIC_ID


def _kafka_error(failure: KafkaException) -> KafkaError:
    error = failure.args[0]
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(error))
