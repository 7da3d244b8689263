"""Where parts are summed up: in this process, or in one for each core where there is much to do."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import connection
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from threading import Thread

from deltamirror.verification.range_digests import Places, Summer, SumTask
from pipeline.verification.suspects import SideSums
from schemas.errors import WorkerDiedError

MANY = 500_000
"""Records from which on processes of their own, half a second each to start, pay."""

LOOK_S = 0.2
"""How often it is told how far the processes are."""

Summed = tuple[SumTask, list[SideSums]]
SumUp = Callable[[Iterable[SumTask]], Iterator[Summed]]
"""Sums tasks up and gives them back as they are done, in any order."""


class _StoppedError(Exception):
    """Nobody waits for this any more."""


@contextmanager
def summing(
    places: Places, processes: int, side: str, tell: Callable[[int], None]
) -> Iterator[SumUp]:
    """Give a way to sum tasks up, in this process where *processes* is 1.

    *tell* hears of the records read on *side* meanwhile. Raises WorkerDiedError.
    """
    if processes == 1:
        with _here(places, side, tell) as sum_up:
            yield sum_up
        return
    context = multiprocessing.get_context("spawn")
    read, stop = context.Value("q", 0), context.Event()
    pool = ProcessPoolExecutor(processes, context, _begin, (places, side, read, stop))
    try:
        yield lambda tasks: _spread(pool, tasks, 2 * processes, _Told(read, tell))
    except BrokenProcessPool as error:
        raise WorkerDiedError from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _here(places: Places, side: str, tell: Callable[[int], None]) -> Iterator[SumUp]:
    summer = Summer(places, lambda on, rows: tell(rows) if on == side else None)
    try:
        yield lambda tasks: ((task, summer.sum_up(task)) for task in tasks)
    finally:
        summer.close()


class _Told:
    """Tells how much more the processes have read since it was asked last."""

    def __init__(self, read: Synchronized[int], tell: Callable[[int], None]) -> None:
        self._read, self._tell, self._told = read, tell, 0

    def __call__(self) -> None:
        now = self._read.value
        self._tell(now - self._told)
        self._told = now


def _spread(
    pool: ProcessPoolExecutor, tasks: Iterable[SumTask], ahead: int, tell: Callable[[], None]
) -> Iterator[Summed]:
    """Give *tasks* to the pool, *ahead* at a time, so that few of them are held at once."""
    left = iter(tasks)
    waiting: dict[Future[list[SideSums]], SumTask] = {}
    while True:
        for task in islice(left, ahead - len(waiting)):
            waiting[pool.submit(_sum_up, task)] = task
        if not waiting:
            return
        done, _ = wait(waiting, LOOK_S, FIRST_COMPLETED)
        tell()
        for future in done:
            yield waiting.pop(future), future.result()


_summer: Summer | None = None


def _begin(places: Places, side: str, read: Synchronized[int], stop: Event) -> None:
    """Make a process of the pool ready; it ends with its parent, however that ends."""
    global _summer
    # Ctrl-C is for the parent, which lets its processes end in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, name="parent", daemon=True).start()

    def tell(on: str, rows: int) -> None:
        if stop.is_set():
            raise _StoppedError
        if on == side:
            with read.get_lock():
                read.value += rows

    _summer = Summer(places, tell)


def _sum_up(task: SumTask) -> list[SideSums]:
    if _summer is None:
        raise RuntimeError("the process was not made ready")
    return _summer.sum_up(task)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
