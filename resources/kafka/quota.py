"""Track how long a target's quota throttles a producer (KIP-219); bound calls that may hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class ProduceQuota:
    """The latest end of a throttling, from the client's throttle events.

    The broker answers at once and then does not read from the connection, so all later requests on
    that connection wait. An event of 0 s comes from another connection to that broker and does not
    end the throttling.
    """

    def __init__(self) -> None:
        self.until = 0.0

    def record(self, throttle_s: float) -> None:
        """Record an event: a broker throttles its connection for *throttle_s* seconds."""
        self.until = max(self.until, time.monotonic() + throttle_s)

    @property
    def remaining_s(self) -> float:
        """Return the seconds from now for which the broker does not read from the connection."""
        return max(0.0, self.until - time.monotonic())


class NoResponseError(Exception):
    """Raised when a call has not returned in time. Its thread still waits; its result is lost."""


def call_with_timeout(call: Callable[[], T], seconds: float) -> T:
    """Run *call* in a thread; return its result or raise its error.

    Raises NoResponseError if it does not return within *seconds*.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    # A daemon thread, because a call that never returns must not keep the process alive.
    Thread(target=run, name="bounded", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        if answer.done():  # the call itself raised it
            raise
        raise NoResponseError(f"no answer in {seconds:.0f} s") from None
