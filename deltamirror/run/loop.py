"""Base of staging and replay loops: lease, failures, waits, and signals between loops."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from deltamirror.backoff import Backoff
from deltamirror.listener import Listener
from deltamirror.timings import Timings
from schemas.errors.base import ConfigError, DeltamirrorError
from schemas.errors.environment import PermissionMissingError

log = logging.getLogger(__name__)

IDLE_INTERVAL_FACTOR = 5
"""An idle loop's interval is this many times its tick's duration, up to `max_idle_interval_s`."""


@dataclass(frozen=True)
class RunSignals:
    """Signals that the loops of a run share.

    *stop*: the run has to stop. *done*: its work is done. *staged*: records were staged.
    """

    stop: threading.Event
    done: threading.Event = field(default_factory=threading.Event)
    staged: threading.Condition = field(default_factory=threading.Condition)

    def is_over(self) -> bool:
        """Return whether the loops have to end."""
        return self.stop.is_set() or self.done.is_set()

    def sleep(self, seconds: float) -> None:
        """Wait *seconds*, or until the run is stopped."""
        if not self.done.is_set():
            self.stop.wait(seconds)


class Loop:
    """Base class of staging and replay loops. Its thread writes it; any thread may read it.

    *failure* is the last tick's error. *had_lease*: this process held the lease, so it reports.
    """

    def __init__(
        self, role: str, signals: RunSignals, listeners: Sequence[Listener], timings: Timings
    ) -> None:
        self.role = role
        self.backoff = Backoff(timings)
        self.failure: DeltamirrorError | None = None
        self.had_lease = False
        self._signals, self._listeners, self._timings = signals, listeners, timings
        self._started_at_s = time.monotonic()

    def _start_tick(self) -> None:
        self._started_at_s = time.monotonic()
        for listener in self._listeners:
            listener.tick_started(self.role)

    def _wait_for_lease(self) -> None:
        for listener in self._listeners:
            listener.lease_refused(self.role)
        self._signals.sleep(self._timings.lease_poll_interval_s)

    def _fail(self, error: DeltamirrorError) -> float:
        """Report a failed tick; return how many seconds to wait before the next one."""
        self.had_lease = True
        self.failure = error
        log.warning("%s: %s", self.role, error)
        for listener in self._listeners:
            listener.tick_failed(self.role, error)
        needs_operator = isinstance(error, ConfigError | PermissionMissingError)
        return self.backoff.failed(needs_operator=needs_operator)

    def _seconds_to_next_tick(self, *, is_idle: bool) -> float:
        took_s, interval_s = time.monotonic() - self._started_at_s, self._timings.tick_interval_s
        if is_idle:
            longest_s = min(self._timings.max_idle_interval_s, IDLE_INTERVAL_FACTOR * took_s)
            interval_s = max(interval_s, longest_s)
        return max(0.0, interval_s - took_s)
