"""A cluster's administration client: made when first used, kept, and its silence explained."""

from __future__ import annotations

import concurrent.futures
import ctypes
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Uuid
from confluent_kafka.admin import AdminClient

from resources.kafka.connection_diagnosis import Finding, find_out
from resources.kafka.group_offsets_client import GroupClient
from schemas.errors import (
    ClientSettingsError,
    DeltamirrorError,
    PermissionMissingError,
    RequestRefusedError,
    UnreachableError,
)
from schemas.kafka.acl import Permission
from schemas.kafka.partition import NO_TOPIC_ID

Answer = TypeVar("Answer")

WAIT_S = 10.0

RENEW_S = 15.0
"""How long a client may stay silent until another is tried; twice as long for the next one."""

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
    """The administration clients of the cluster *alias*: one, and one for groups' offsets."""

    def __init__(self, alias: str, settings: Mapping[str, Any]) -> None:
        self.alias = alias
        self.servers = str(settings.get("bootstrap.servers", ""))
        # Whatever the client would log as an error comes to `error_cb` too.
        self.settings: dict[str, Any] = {"log_level": 2, **settings}
        self._kept: _KeptClients | None = None

    @property
    def client(self) -> AdminClient:
        """Return the client, made at first use. Raises ClientSettingsError."""
        return self._clients().client

    @property
    def groups(self) -> GroupClient:
        """Return the client for what groups committed, made at first use.

        Raises ClientSettingsError.
        """
        kept = self._clients()
        with _making:
            if kept.groups is None:
                kept.groups = GroupClient(self.settings)
            return kept.groups

    def renew_groups(self, former: GroupClient) -> None:
        """End *former*, which did not answer: the next question goes to a new client."""
        kept = self._clients()
        with _making:
            # Another thread may have done so already.
            if kept.groups is not former:
                return
            kept.groups = None
        former.end()

    def _clients(self) -> _KeptClients:
        if self._kept is None:
            try:
                self._kept = _kept_clients(self.settings)
            except KafkaException as failure:
                raise ClientSettingsError(self.alias, _error_of(failure).str()) from None
        return self._kept

    @contextmanager
    def asking(self, what: str, *needs: Permission) -> Iterator[None]:
        """Turn what the client raises inside into UnreachableError or RequestRefusedError.

        Of *needs* the one that is missing is named, as PermissionMissingError.
        """
        try:
            yield
        except KafkaException as failure:
            raise self.explained(_error_of(failure), what, *needs) from None
        except (TimeoutError, concurrent.futures.TimeoutError):
            raise self._unreachable("no answer in time") from None
        else:
            if self._kept is not None:
                self._kept.heard()

    def answer(
        self, future: concurrent.futures.Future[Answer], what: str, *needs: Permission
    ) -> Answer:
        """Return what *future* brings. Raises UnreachableError or RequestRefusedError."""
        with self.asking(what, *needs):
            # The request itself has ended by then; the second is for the client's own threads.
            return future.result(timeout=WAIT_S + 1)

    def explained(self, error: KafkaError, what: str, *needs: Permission) -> DeltamirrorError:
        """Return the error that a person should read where *what* was asked."""
        if error.code() in SILENCE:
            return self._unreachable(error.str())
        for permission in needs:
            if permission.is_missed_by(error.name()):
                return PermissionMissingError(self.alias, what, permission)
        return RequestRefusedError(self.alias, what, error.name(), error.str())

    def _unreachable(self, reason: str) -> UnreachableError:
        told = self._tellings()
        best = min(told, key=lambda error: SILENCE.index(error.code()), default=None)
        if self._kept is not None:
            self._kept.missed()
        if best is None or self._kept is None:
            return UnreachableError(self.alias, self.servers, reason)
        findings = self._kept.findings
        if best.code() not in findings:  # it may look, which takes time: once
            findings[best.code()] = find_out(self.settings, best)
        finding = findings[best.code()]
        if finding is not None:
            return finding.kind(self.alias, self.servers, finding.reason)
        return UnreachableError(self.alias, self.servers, f"{best.str()} ({best.name()})")

    def _tellings(self) -> list[KafkaError]:
        """Return what the client reported beside its answers since the last good one."""
        if self._kept is None:
            return []
        while self._kept.client.poll(0):
            pass
        return [error for error in self._kept.told if error.code() in SILENCE]


@dataclass
class _KeptClients:
    """The clients with *settings*, and since when the administration's has not answered.

    After a broker was frozen or away a client may wait for the controller for good (seen with
    librdkafka 2.16) while a new one is answered at once. As none is ever destroyed, one that stays
    silent is replaced after `RENEW_S`, then after twice that time, and so on.
    """

    settings: dict[str, Any]
    client: AdminClient
    told: deque[KafkaError]
    groups: GroupClient | None = None
    findings: dict[int, Finding | None] = field(default_factory=dict)
    silent_since: float | None = None
    renew_after_s: float = RENEW_S

    def heard(self) -> None:
        """Take note of an answer."""
        self.told.clear()
        self.findings.clear()
        self.silent_since, self.renew_after_s = None, RENEW_S

    def missed(self) -> None:
        """Take note of a question without an answer, and try another client when it is time."""
        now = time.monotonic()
        if self.silent_since is None:
            self.silent_since = now
        elif now - self.silent_since > self.renew_after_s:
            self.client = _new_client(self.settings, self.told)
            self.silent_since, self.renew_after_s = now, 2 * self.renew_after_s


_kept: dict[tuple[object, ...], _KeptClients] = {}
_making = Lock()


def _kept_clients(settings: Mapping[str, Any]) -> _KeptClients:
    """Return this process's clients with *settings*. An AdminClient is never destroyed.

    To destroy one waits for its threads, and they never end (librdkafka 2.16) when a request to a
    group's coordinator ran out of time and the broker has gone since: the whole process would
    stand still, at the very moment it has to fail over. So there are few, and they stay.
    """
    key = (os.getpid(), *sorted(settings.items()))
    with _making:
        if key not in _kept:
            told: deque[KafkaError] = deque(maxlen=32)
            _kept[key] = _KeptClients(dict(settings), _new_client(settings, told), told)
        return _kept[key]


def _new_client(settings: Mapping[str, Any], told: deque[KafkaError]) -> AdminClient:
    reporting: dict[str, Any] = {**settings, "error_cb": told.append}
    client = AdminClient(reporting)
    # One reference that nobody gives back, so that the interpreter's end leaves it alone.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    return client


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
