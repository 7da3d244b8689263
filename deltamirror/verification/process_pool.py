"""Compute digests of parts, in this process or, for many records, in a process for each core."""

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

from deltamirror.verification.range_digests import PartSummer, SideSettings, SumTask
from pipeline.verification.suspects import SideDigests
from schemas.errors.environment import WorkerDiedError

MIN_RECORDS_FOR_POOL = 500_000
"""Records from which on worker processes are used. Each takes half a second to start."""

PROGRESS_INTERVAL_S = 0.2
"""How often, in s, progress of the processes is reported."""

SummedTask = tuple[SumTask, list[SideDigests]]
SumFunction = Callable[[Iterable[SumTask]], Iterator[SummedTask]]
"""Compute the digests of tasks and yield them in the order in which they complete."""


class _StoppedError(Exception):
    """Raised in a worker process to end a read whose result is not needed any more."""


@contextmanager
def sum_pool(
    side_settings: SideSettings, processes: int, side: str, report: Callable[[int], None]
) -> Iterator[SumFunction]:
    """Yield a function that computes digests of tasks, in this process if *processes* is 1.

    *report* is called with the number of records read on *side* since its last call. Raises
    WorkerDiedError.
    """
    if processes == 1:
        with _sum_in_process(side_settings, side, report) as sum_parts:
            yield sum_parts
        return
    context = multiprocessing.get_context("spawn")
    read, stop = context.Value("q", 0), context.Event()
    pool = ProcessPoolExecutor(processes, context, _init_worker, (side_settings, side, read, stop))
    try:
        yield lambda tasks: _submit_ahead(
            pool, tasks, 2 * processes, _ProgressCounter(read, report)
        )
    except BrokenProcessPool as error:
        raise WorkerDiedError from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _sum_in_process(
    side_settings: SideSettings, side: str, report: Callable[[int], None]
) -> Iterator[SumFunction]:
    summer = PartSummer(side_settings, lambda on, rows: report(rows) if on == side else None)
    try:
        yield lambda tasks: ((task, summer.sum_parts(task)) for task in tasks)
    finally:
        summer.close()


class _ProgressCounter:
    """Report how many records the processes have read since the last call."""

    def __init__(self, read: Synchronized[int], report: Callable[[int], None]) -> None:
        self._read, self._report, self._reported = read, report, 0

    def __call__(self) -> None:
        now = self._read.value
        self._report(now - self._reported)
        self._reported = now


def _submit_ahead(
    pool: ProcessPoolExecutor, tasks: Iterable[SumTask], ahead: int, report: Callable[[], None]
) -> Iterator[SummedTask]:
    """Submit *tasks* to the pool, at most *ahead* at a time, to limit memory."""
    left = iter(tasks)
    waiting: dict[Future[list[SideDigests]], SumTask] = {}
    while True:
        for task in islice(left, ahead - len(waiting)):
            waiting[pool.submit(_sum_task, task)] = task
        if not waiting:
            return
        done, _ = wait(waiting, PROGRESS_INTERVAL_S, FIRST_COMPLETED)
        report()
        for future in done:
            yield waiting.pop(future), future.result()


_summer: PartSummer | None = None


def _init_worker(
    side_settings: SideSettings, side: str, read: Synchronized[int], stop: Event
) -> None:
    """Initialize a process of the pool. It exits when its parent exits or is killed."""
    global _summer
    # The parent handles Ctrl-C and shuts the pool down.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, name="parent", daemon=True).start()

    def report(on: str, rows: int) -> None:
        if stop.is_set():
            raise _StoppedError
        if on == side:
            with read.get_lock():
                read.value += rows

    _summer = PartSummer(side_settings, report)


def _sum_task(task: SumTask) -> list[SideDigests]:
    if _summer is None:
        raise RuntimeError("the worker process is not initialized")
    return _summer.sum_parts(task)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
