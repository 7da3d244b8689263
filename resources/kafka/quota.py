"""How long a target's quota keeps a producer waiting (KIP-219)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from threading import Thread
from typing import Protocol, TypeVar


class QuotaExceeded(Protocol):
    """What the client tells: a broker lets this connection wait; *throttle_time* in seconds."""

    throttle_time: float


class ProduceQuota:
    """The longest wait that a broker has ordered, as confluent-kafka's `throttle_cb` hears it.

    The broker answers at once and then does not read from the connection, which whatever is sent
    over it shares. An event of 0 s comes from another connection to that broker: it ends nothing.
    """

    def __init__(self) -> None:
        self.until = 0.0

    def __call__(self, event: QuotaExceeded) -> None:
        """Take in an event."""
        self.until = max(self.until, time.monotonic() + event.throttle_time)

    @property
    def remaining_s(self) -> float:
        """Return for how many seconds from now the broker does not listen."""
        return max(0.0, self.until - time.monotonic())


T = TypeVar("T")


class NoResponseError(Exception):
    """A call has not returned in time; its thread waits on, and nobody hears what comes of it."""


def call_with_timeout(call: Callable[[], T], seconds: float) -> T:
    """Return what *call* returns, or raise what it raises. NoResponseError: not in *seconds*."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    # A daemon: what never returns must not keep the process.
    Thread(target=run, name="bounded", daemon=True).start()
    try:
        return answer.result(seconds)
    except LateError:
        if answer.done():  # it is the call's own
            raise
        raise NoResponseError(f"no answer in {seconds:.0f} s") from None
