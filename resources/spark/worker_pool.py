"""Python workers of Spark that stay: each is a task that is handed one job after the other.

A Spark job takes 0.1 s to start, and a tick has two of them; what its tasks connect, a consumer
and a producer for each slot, takes as long again (docs/decisions/0005 has the numbers). Here Spark
starts a worker once, in a task that ends when it is let go. Jobs and answers go over a socket that
only this user can open: jobs carry clients' logins, and never touch a disk.
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from pyspark import SparkContext

from resources.librdkafka.bindings import release_memory
from schemas.errors import SparkFailedError

Job = TypeVar("Job")
Answer = TypeVar("Answer")
Work = Callable[[Job], Sequence[Answer]]

START_TIMEOUT_S = 120.0
"""How long a worker may take to begin, on a machine that is busy: it imports for a second."""

POLL_INTERVAL_S = 0.2
"""How often it is looked whether a worker that does not come has failed."""

SHUTDOWN_TIMEOUT_S = 1.0
"""How long workers are waited for that were let go: Spark complains of those it is ended before."""

FAILURE_TIMEOUT_S = 10.0
"""How long Spark may take to tell why a worker is gone."""

MAX_FOLDER_NAME_BYTES = 64
"""How long the name of a folder may be that a socket's folder is made in."""

RELEASE_INTERVAL_S = 5.0
"""How often a worker that is always at work gives memory back: that takes 10 ms."""


class WorkerPool(Generic[Job, Answer]):
    """Workers by number, from 0 on; each calls *make* once, and what that gives does its jobs.

    *context* gives the Spark that starts them. A worker is started at its first job, or by `start`;
    in place of one that died, another is at the next job. Not thread-safe but for `close`.
    """

    def __init__(
        self, context: Callable[[], SparkContext], make: Callable[[], Work[Job, Answer]]
    ) -> None:
        self._context, self._make = context, make
        self._workers: dict[int, _Worker] = {}

    def start(self, count: int) -> None:
        """Start the first *count* workers, without waiting for them."""
        for number in range(count):
            self._worker(number)

    def wait_started(self) -> None:
        """Return when every worker that was called has begun. Raises SparkFailedError."""
        for number, worker in list(self._workers.items()):
            try:
                worker.connect()
            except SparkFailedError:
                self._workers.pop(number, None)
                raise

    def run(self, jobs: Mapping[int, Job]) -> list[Answer]:
        """Return the answers of all *jobs*, each done by the worker of its number, side by side.

        Raises SparkFailedError where a worker died or its work raised, once the others are done.
        """
        workers = {number: self._worker(number) for number in jobs}
        failures: list[SparkFailedError] = []
        answers: list[Answer] = []
        asked: dict[Connection, int] = {}
        for number, worker in workers.items():
            try:
                asked[worker.submit(jobs[number])] = number
            except SparkFailedError as error:
                failures.append(error)
                self._workers.pop(number, None)
        while asked:
            for answered in wait(list(asked)):
                number = asked.pop(answered)  # type: ignore[call-overload]
                try:
                    answers += workers[number].answer()
                except SparkFailedError as error:
                    failures.append(error)
                    if workers[number].is_shut_down:
                        self._workers.pop(number, None)
        if failures:
            raise failures[0]
        return answers

    def close(self) -> None:
        """Let all workers go; who waits for an answer in another thread gets SparkFailedError.

        Those that are at work end when they are done with it, and are not waited for then.
        """
        workers, self._workers = list(self._workers.values()), {}
        for worker in workers:
            worker.shutdown()
        give_up_at = time.monotonic() + SHUTDOWN_TIMEOUT_S
        for worker in workers:
            worker.join(max(0.0, give_up_at - time.monotonic()))

    def _worker(self, number: int) -> _Worker:
        if number not in self._workers:
            self._workers[number] = _Worker(self._context(), self._make)
        return self._workers[number]


class _Worker:
    """A worker, from the driver's side: the Spark job that it is, and the socket to it."""

    def __init__(self, context: SparkContext, make: Callable[[], Work[Any, Any]]) -> None:
        self._folder = _private_folder()
        self._listener = socket.socket(socket.AF_UNIX)
        address = str(self._folder / "worker")
        self._listener.bind(address)
        self._listener.listen(1)
        self._listener.settimeout(POLL_INTERVAL_S)
        self._socket: socket.socket | None = None
        self._connection: Connection | None = None
        self._error: Exception | None = None
        self.is_shut_down = False

        def serve(_: Iterable[int]) -> Iterator[int]:
            _serve(address, make)
            return iter(())

        def host() -> None:
            try:
                context.parallelize([0], 1).mapPartitions(serve).collect()
            except Exception as error:
                self._error = error

        self._job = threading.Thread(target=host, name="Spark worker", daemon=True)
        self._job.start()

    def submit(self, job: Any) -> Connection:  # noqa: ANN401 - jobs are of any kind
        """Give the worker *job*; return what its answer comes over. Raises SparkFailedError."""
        connection = self.connect()
        try:
            connection.send(job)
        except OSError:
            self._raise_lost()
        return connection

    def answer(self) -> Sequence[Any]:
        """Return the answer to the job that was handed over. Raises SparkFailedError."""
        try:
            answer = self.connect().recv()
        except (EOFError, OSError):
            self._raise_lost()
        if isinstance(answer, _WorkerError):
            raise SparkFailedError(f"a Spark task failed: {answer.message()}")
        found: Sequence[Any] = answer
        return found

    def shutdown(self) -> None:
        """Let the worker end, when it has done what it is doing."""
        self.is_shut_down = True
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._socket is not None:
            with suppress(OSError):  # it is gone already
                self._socket.shutdown(socket.SHUT_RDWR)

    def join(self, seconds: float) -> None:
        """Return when the Spark job that this worker is has ended, or after *seconds*."""
        self._job.join(seconds)

    def connect(self) -> Connection:
        """Return the connection to the worker once it has begun. Raises SparkFailedError."""
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while self._connection is None:
            try:
                self._socket, _ = self._listener.accept()
            except TimeoutError:
                if not self._job.is_alive() or time.monotonic() > give_up_at:
                    self._raise_lost()
            except OSError:  # let go meanwhile
                self._raise_lost()
            else:
                self._connection = Connection(os.dup(self._socket.fileno()))
                self._listener.close()
                shutil.rmtree(self._folder, ignore_errors=True)
        return self._connection

    def _raise_lost(self) -> None:
        """Raise what Spark says of a worker that is gone."""
        was_let_go = self.is_shut_down
        self.shutdown()
        self._job.join(0 if was_let_go else FAILURE_TIMEOUT_S)
        if os.environ.get("DELTAMIRROR_DEBUG") and self._error is not None:
            raise self._error
        why = _error_line(self._error) if self._error else "its Python worker does not answer"
        raise SparkFailedError(f"a Spark task failed: {why}") from self._error


def _private_folder() -> Path:
    """Return a new folder that nobody else may look into, with a name that a socket's has room for.

    That is about 100 bytes, and a session's own folder of temporary files may have more.
    """
    is_short = len(os.fsencode(tempfile.gettempdir())) <= MAX_FOLDER_NAME_BYTES
    return Path(tempfile.mkdtemp(prefix="deltamirror-", dir=None if is_short else "/tmp"))


class _WorkerError:
    """What a worker's work raised, in words."""

    def __init__(self, error: BaseException) -> None:
        self._line = f"{type(error).__name__}: {error}"
        self._report = "".join(traceback.format_exception(error))

    def message(self) -> str:
        """Return the error's line, for a debugger the whole report."""
        return self._report if os.environ.get("DELTAMIRROR_DEBUG") else self._line.splitlines()[0]


def _serve(address: str, make: Callable[[], Work[Any, Any]]) -> None:
    """Do the jobs that come over *address* until it is closed: a task's whole work."""
    work = make()
    _disable_gc()
    try:
        driver = Client(address, "AF_UNIX")
    except OSError:
        return  # it was let go before it began
    with driver:
        tidied = time.monotonic()
        while True:
            try:
                job = driver.recv()
            except (EOFError, OSError):
                return
            begun = time.monotonic()
            try:
                answer: Sequence[Any] | _WorkerError = list(work(job))
            except Exception as error:
                answer = _WorkerError(error)
            del job
            try:
                driver.send(answer)
            except OSError:
                return  # nobody waits for it
            del answer
            now = time.monotonic()
            if now - begun > RELEASE_INTERVAL_S / 10 or now - tidied > RELEASE_INTERVAL_S:
                _release_memory()
                tidied = now


def _disable_gc() -> None:
    """Stop the collector: it would walk every record that is held, again and again."""
    gc.collect()
    gc.freeze()
    gc.disable()


def _release_memory() -> None:
    """Give the memory that jobs have used back to the system: the worker lives on and waits."""
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()
    release_memory()


def _error_line(error: BaseException) -> str:
    """Return the telling line of an error that comes with two stack traces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any("Python worker exited unexpectedly" in line for line in lines):
        return "its Python worker was killed or crashed"
    telling = [line for line in lines if "Error" in line and not line.startswith(("at ", "File"))]
    return (telling or lines or [type(error).__name__])[-1][:300]
