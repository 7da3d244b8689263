"""Run jobs on resident Python workers of Spark: each worker is one Spark task that runs many jobs.

A Spark job and a slot's Kafka clients take 0.1 s each to start (docs/decisions/0005). So a worker
is started once, in a task that ends when it is shut down. Jobs and answers use a socket that only
this user can open, because jobs contain clients' credentials. They are never written to disk.
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
from schemas.errors.environment import SparkFailedError

Job = TypeVar("Job")
Answer = TypeVar("Answer")
Work = Callable[[Job], Sequence[Answer]]

START_TIMEOUT_S = 120.0  # a worker's imports take 1 s, and longer on a busy machine
POLL_INTERVAL_S = 0.2  # between checks whether a worker that has not connected has failed
SHUTDOWN_TIMEOUT_S = 1.0  # Spark logs errors if it ends before its workers
FAILURE_TIMEOUT_S = 10.0  # in which Spark must report why a worker ended
MAX_FOLDER_NAME_BYTES = 64  # of a folder for sockets, whose paths have at most about 100 bytes
RELEASE_INTERVAL_S = 5.0  # a busy worker returns memory this often, which takes 10 ms


class WorkerPool(Generic[Job, Answer]):
    """Workers numbered from 0. Each calls *make* once and runs its jobs with the result.

    *context* returns the SparkContext that starts them. A worker starts at its first job or by
    `start`. A worker that died is replaced at the next job. Only `close` is thread-safe.
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
        """Wait until all started workers are connected. Raises SparkFailedError."""
        for number, worker in list(self._workers.items()):
            try:
                worker.connect()
            except SparkFailedError:
                self._workers.pop(number, None)
                raise

    def run(self, jobs: Mapping[int, Job]) -> list[Answer]:
        """Run *jobs* in parallel, each on the worker of its number; return all answers.

        Raises SparkFailedError, after all jobs have ended, if a worker died or its work raised.
        """
        workers = {number: self._worker(number) for number in jobs}
        failures: list[SparkFailedError] = []
        answers: list[Answer] = []
        waiting: dict[Connection, int] = {}
        for number, worker in workers.items():
            try:
                waiting[worker.submit(jobs[number])] = number
            except SparkFailedError as error:
                failures.append(error)
                self._workers.pop(number, None)
        while waiting:
            for answered in wait(list(waiting)):
                number = waiting.pop(answered)  # type: ignore[call-overload]
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
        """Shut all workers down. A `run` in another thread raises SparkFailedError.

        A busy worker ends after its job; this waits at most SHUTDOWN_TIMEOUT_S for it.
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
    """The driver's side of a worker: the thread of its Spark job, and the socket to it."""

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
        """Send *job*; return the connection that receives its answer. Raises SparkFailedError."""
        connection = self.connect()
        try:
            connection.send(job)
        except OSError:
            self._raise_lost()
        return connection

    def answer(self) -> Sequence[Any]:
        """Return the answer to the submitted job. Raises SparkFailedError."""
        try:
            answer: Sequence[Any] | str = self.connect().recv()
        except (EOFError, OSError):
            self._raise_lost()
        if isinstance(answer, str):
            raise SparkFailedError(f"a Spark task failed: {answer}")
        return answer

    def shutdown(self) -> None:
        """Make the worker end after its current job."""
        self.is_shut_down = True
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._socket is not None:
            with suppress(OSError):  # the worker has closed it
                self._socket.shutdown(socket.SHUT_RDWR)

    def join(self, seconds: float) -> None:
        """Wait until the worker's Spark job has ended, at most *seconds*."""
        self._job.join(seconds)

    def connect(self) -> Connection:
        """Wait until the worker has started; return its connection. Raises SparkFailedError."""
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while self._connection is None:
            try:
                self._socket, _ = self._listener.accept()
            except TimeoutError:
                if not self._job.is_alive() or time.monotonic() > give_up_at:
                    self._raise_lost()
            except OSError:  # shut down meanwhile
                self._raise_lost()
            else:
                self._connection = Connection(os.dup(self._socket.fileno()))
                self._listener.close()
                shutil.rmtree(self._folder, ignore_errors=True)
        return self._connection

    def _raise_lost(self) -> None:
        """Raise Spark's error for a worker that has ended."""
        was_shut_down = self.is_shut_down
        self.shutdown()
        self._job.join(0 if was_shut_down else FAILURE_TIMEOUT_S)
        if os.environ.get("DELTAMIRROR_DEBUG") and self._error is not None:
            raise self._error
        reason = _error_line(self._error) if self._error else "its Python worker does not respond"
        raise SparkFailedError(f"a Spark task failed: {reason}") from self._error


def _private_folder() -> Path:
    """Create a folder that only this user can read, with a path short enough for a socket."""
    is_short = len(os.fsencode(tempfile.gettempdir())) <= MAX_FOLDER_NAME_BYTES
    return Path(tempfile.mkdtemp(prefix="deltamirror-", dir=None if is_short else "/tmp"))


def _serve(address: str, make: Callable[[], Work[Any, Any]]) -> None:
    """Run the jobs that arrive at the socket *address* until it is closed."""
    work = make()
    # Disable garbage collection: each run would visit every record in memory.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        driver = Client(address, "AF_UNIX")
    except OSError:
        return  # the worker was shut down before it started
    with driver:
        released = time.monotonic()
        while True:
            try:
                job = driver.recv()
            except (EOFError, OSError):
                return
            begun = time.monotonic()
            try:
                answer: Sequence[Any] | str = list(work(job))
            except Exception as error:
                answer = _error_text(error)
            del job
            try:
                driver.send(answer)
            except OSError:
                return  # the driver has closed the connection
            del answer
            now = time.monotonic()
            if now - begun > RELEASE_INTERVAL_S / 10 or now - released > RELEASE_INTERVAL_S:
                _release_memory()
                released = now


def _release_memory() -> None:
    """Return freed memory to the system, because the worker stays while it is idle."""
    gc.collect()
    release_memory()


def _error_text(error: Exception) -> str:
    """Return the error's first line, or the stack trace if DELTAMIRROR_DEBUG is set."""
    if os.environ.get("DELTAMIRROR_DEBUG"):
        return "".join(traceback.format_exception(error))
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _error_line(error: BaseException) -> str:
    """Return the line with the cause from an error that contains two stack traces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any("Python worker exited unexpectedly" in line for line in lines):
        return "its Python worker was killed or crashed"
    causes = [line for line in lines if "Error" in line and not line.startswith(("at ", "File"))]
    return (causes or lines or [type(error).__name__])[-1][:300]
