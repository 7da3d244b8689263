"""How long a loop waits after a failure, and when a run that is to end stops hoping."""

from __future__ import annotations

import time

from schemas.errors import ConfigError, DeltamirrorError, PermissionMissingError

BACKOFF_S = (0.2, 5.0)
"""First and longest wait after a failure; it doubles in between."""

GIVE_UP_S = 30.0
"""How long a run that is to end when caught up bears failures of one loop in a row."""


class Patience:
    """The patience of one loop: written by its thread, read by any."""

    def __init__(self) -> None:
        self._wait = BACKOFF_S[0]
        self._is_hopeless = False
        self._failed: tuple[float, float] | None = None  # first and last of the failures in a row

    def worked(self) -> None:
        """Forget the failures before this."""
        self._wait, self._failed = BACKOFF_S[0], None
        self._is_hopeless = False

    def failed(self, *, is_hopeless: bool = False) -> float:
        """Note a failure now; return how many seconds to wait before the next try.

        One that *is_hopeless* does not pass by itself: nothing is gained by hoping on.
        """
        self._is_hopeless = is_hopeless
        now = time.monotonic()
        self._failed = (self._failed[0] if self._failed else now, now)
        wait, self._wait = self._wait, min(BACKOFF_S[1], self._wait * 2)
        return wait

    def is_over(self) -> bool:
        """Return whether nothing but failures came for too long, up to the last of them.

        A try that is under way may be the one that works: its time does not count.
        """
        failed = self._failed
        if self._is_hopeless:
            return True
        return failed is not None and failed[1] - failed[0] > GIVE_UP_S


def is_hopeless(error: DeltamirrorError) -> bool:
    """Return whether only a person can mend what *error* tells."""
    return isinstance(error, ConfigError | PermissionMissingError)
