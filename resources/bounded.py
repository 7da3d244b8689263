"""A bound for calls that keep none of their own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class NoAnswerError(Exception):
    """A call has not returned in time; its thread waits on, and nobody hears what comes of it."""


def bounded(call: Callable[[], T], seconds: float) -> T:
    """Return what *call* returns, or raise what it raises. NoAnswerError: not in *seconds*."""
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
        raise NoAnswerError(f"no answer in {seconds:.0f} s") from None
