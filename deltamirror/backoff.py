"""How long a loop waits after a failure, and when a run that is to end stops hoping."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deltamirror.timings import Timings
from schemas.errors import ConfigError, DefectError, DeltamirrorError, PermissionMissingError


class Backoff:
    """The waits of one loop after failed ticks. Its thread writes it, any thread may read it."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._wait = timings.backoff_initial_s
        self._needs_operator = False
        self._failed: tuple[float, float] | None = None  # first and last of the failures in a row

    def succeeded(self) -> None:
        """Forget the failures before this."""
        self._wait, self._failed = self._timings.backoff_initial_s, None
        self._needs_operator = False

    def failed(self, *, needs_operator: bool = False) -> float:
        """Note a failure now; return how many seconds to wait before the next try.

        One that *needs_operator* does not pass by itself: nothing is gained by hoping on.
        """
        self._needs_operator = needs_operator
        now = time.monotonic()
        self._failed = (self._failed[0] if self._failed else now, now)
        wait, self._wait = self._wait, min(self._timings.backoff_max_s, self._wait * 2)
        return wait

    def is_exhausted(self) -> bool:
        """Return whether nothing but failures came for too long, up to the last of them.

        A try that is under way may be the one that works: its time does not count.
        """
        failed = self._failed
        if self._needs_operator:
            return True
        return failed is not None and failed[1] - failed[0] > self._timings.failure_timeout_s


def needs_operator(error: DeltamirrorError) -> bool:
    """Return whether only a person can mend what *error* tells."""
    return isinstance(error, ConfigError | PermissionMissingError)


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
        raise DefectError(f"{type(error).__name__}: {error}".partition("\n")[0]) from error
