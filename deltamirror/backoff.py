"""Backoff of a loop after failures, and the limit after which a run until caught up gives up."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deltamirror.timings import Timings
from schemas.errors.base import DefectError, DeltamirrorError

log = logging.getLogger(__name__)


class Backoff:
    """The waits of one loop after failed ticks. Its thread writes it, any thread may read it."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._wait = timings.backoff_initial_s
        self._needs_operator = False
        self._failed: tuple[float, float] | None = None  # first and last of the failures in a row

    def succeeded(self) -> None:
        """Reset the backoff after a successful tick."""
        self._wait, self._failed = self._timings.backoff_initial_s, None
        self._needs_operator = False

    def failed(self, *, needs_operator: bool = False) -> float:
        """Record a failure; return the wait in s. With *needs_operator* no more retries help."""
        self._needs_operator = needs_operator
        now = time.monotonic()
        self._failed = (self._failed[0] if self._failed else now, now)
        wait, self._wait = self._wait, min(self._timings.backoff_max_s, self._wait * 2)
        return wait

    def is_exhausted(self) -> bool:
        """Return whether failures without a success span longer than `failure_timeout_s`."""
        failed, limit_s = self._failed, self._timings.failure_timeout_s
        return self._needs_operator or (failed is not None and failed[1] - failed[0] > limit_s)


@contextmanager
def wrap_unexpected_errors() -> Iterator[None]:
    """Raise DefectError for any unexpected exception, so that a bug does not end the loop."""
    try:
        yield
    except DeltamirrorError:
        raise
    except Exception as error:
        log.exception("unexpected error")
        raise DefectError(f"{type(error).__name__}: {error}".partition("\n")[0]) from error
