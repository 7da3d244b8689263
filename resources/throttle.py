"""How long a target's quota keeps a producer waiting (KIP-219)."""

from __future__ import annotations

import time
from typing import Protocol


class Throttled(Protocol):
    """What the client tells: a broker lets this connection wait; *throttle_time* in seconds."""

    throttle_time: float


class Throttle:
    """The longest wait that a broker has ordered, as confluent-kafka's `throttle_cb` hears it.

    The broker answers at once and then does not read from the connection, which whatever is sent
    over it shares. An event of 0 s comes from another connection to that broker: it ends nothing.
    """

    def __init__(self) -> None:
        self.until = 0.0

    def __call__(self, event: Throttled) -> None:
        """Take in an event."""
        self.until = max(self.until, time.monotonic() + event.throttle_time)

    @property
    def left_s(self) -> float:
        """Return for how many seconds from now the broker does not listen."""
        return max(0.0, self.until - time.monotonic())
