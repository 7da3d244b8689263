"""How long a loop waits after a failure, and when a run that is to end stops hoping."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from schemas.errors import ConfigError, DefectError, DeltamirrorError, PermissionMissingError

BACKOFF_S = (0.2, 5.0)
"""First and longest wait after a failure; it doubles in between."""

FAILURE_TIMEOUT_S = 30.0
"""How long a run that is to end when caught up bears failures of one loop in a row."""


class Backoff:
    """The patience of one loop: written by its thread, read by any."""

    def __init__(self) -> None:
        self._wait = BACKOFF_S[0]
        self._needs_operator = False
        self._failed: tuple[float, float] | None = None  # first and last of the failures in a row

    def succeeded(self) -> None:
        """Forget the failures before this."""
        self._wait, self._failed = BACKOFF_S[0], None
        self._needs_operator = False

    def failed(self, *, needs_operator: bool = False) -> float:
        """Note a failure now; return how many seconds to wait before the next try.

        One that *needs_operator* does not pass by itself: nothing is gained by hoping on.
        """
        self._needs_operator = needs_operator
        now = time.monotonic()
        self._failed = (self._failed[0] if self._failed else now, now)
        wait, self._wait = self._wait, min(BACKOFF_S[1], self._wait * 2)
        return wait

    def is_exhausted(self) -> bool:
        """Return whether nothing but failures came for too long, up to the last of them.

        A try that is under way may be the one that works: its time does not count.
        """
        failed = self._failed
        if self._needs_operator:
            return True
        return failed is not None and failed[1] - failed[0] > FAILURE_TIMEOUT_S


def needs_operator(error: DeltamirrorError) -> bool:
    """Return whether only a person can mend what *error* tells."""
    return isinstance(error, ConfigError | PermissionMissingError)


TICK_INTERVAL_S = 0.25
"""How often a loop begins a tick, at most: each makes commits, and a small file for each slot."""

MAX_IDLE_INTERVAL_S = 1.0
"""The same for a loop with nothing to do, where looking takes long: at 1,000 topics it is 0.1 s."""

IDLE_INTERVAL_FACTOR = 5
"""A loop with nothing to do looks for a fifth of the time."""

LEASE_POLL_INTERVAL_S = 1.0
"""How often a duty that another process does is tried for."""


def seconds_to_next_tick(began_at_s: float, *, is_idle: bool) -> float:
    """Return how many seconds to wait from now on, after a tick that began then (monotonic)."""
    took_s = time.monotonic() - began_at_s
    interval_s = (
        max(TICK_INTERVAL_S, min(MAX_IDLE_INTERVAL_S, IDLE_INTERVAL_FACTOR * took_s))
        if is_idle
        else TICK_INTERVAL_S
    )
    return max(0.0, interval_s - took_s)


log = logging.getLogger(__name__)


@contextmanager
def wrap_unexpected_errors() -> Iterator[None]:
    """Raise DefectError for any error that is none of ours: a loop goes on and says so."""
    try:
        yield
    except DeltamirrorError:
        raise
    except Exception as error:
        log.exception("a defect")
        raise DefectError(error) from error
