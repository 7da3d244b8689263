"""Driver that starts `deltamirror run` again whenever it has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import NamedTuple

from tests.support.world import World, kill, until

STOP_SECONDS = 30
WORKER = "-m resources.spark.worker_daemon"

Run = subprocess.Popen[str]


class Process(NamedTuple):
    """A line of `ps`."""

    pid: int
    parent: int
    session: int
    command: str


class Driver:
    """Keep one `deltamirror run` on *world*'s lake running; *unasked* lists unexpected ends."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._run = world.start()
        self._rival: Run | None = None
        self._was_alone = True
        self.unasked: list[str] = []
        self._thread = threading.Thread(target=self._watch, name="driver", daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Kill only the driver with `kill -9`, not its JVM and workers."""
        with self._lock:
            kill(self._run)
            self._start()

    def kill_all(self) -> None:
        """Kill the driver, its JVM and its workers at once, as a power cut does."""
        with self._lock:
            _end_session(self._run)
            self._start()

    def kill_worker(self, within_s: float = 45) -> bool:
        """`kill -9` a Spark Python worker; return whether there was one in time."""
        found: list[Process] = []

        def is_there() -> bool:
            found[:] = _workers(self._run)
            return bool(found)

        try:
            until(is_there, "a worker runs", within_s)
        except TimeoutError:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(found[0].pid, signal.SIGKILL)
        return True

    def rival(self, seconds: float, *, is_first_killed: bool) -> None:
        """Start a second run on the same lake; after *seconds* `kill -9` one of the two."""
        with self._lock:
            rival = self._rival = self._world.start()
            self._was_alone = False
        with contextlib.suppress(subprocess.TimeoutExpired):
            rival.wait(seconds)
        with self._lock:
            self._rival = None
            if self._run is rival:
                return  # The first run has ended, because it did not get the lease.
            if is_first_killed and rival.poll() is None:
                kill(self._run)
                self._run = rival
            else:
                _end_session(rival)

    def stop(self) -> None:
        """Stop the run cleanly, then kill the processes that are left of any run."""
        self._over.set()
        self._thread.join(STOP_SECONDS)
        if self._run.poll() is None:
            self._run.terminate()
            try:
                code = self._run.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.unasked.append(f"did not end within {STOP_SECONDS} s of SIGTERM")
            else:
                if code not in (0, -signal.SIGTERM):  # It may not handle the signal yet.
                    self.unasked.append(f"after SIGTERM it ended with {code}")
        for run in self._world.runs:
            _end_session(run)

    def _start(self) -> None:
        self._run = self._world.start()
        self._was_alone = self._rival is None

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            with self._lock:
                code = self._run.poll()
                if code is None:
                    continue
                # Of two runs on one lake, the one that does not get the lease ends, as expected.
                if self._was_alone:
                    self.unasked.append(f"ended unexpectedly with {code}")
                if self._rival is not None and self._rival.poll() is None:
                    self._run = self._rival
                else:
                    self._start()


def _workers(run: Run) -> list[Process]:
    """Return the Python workers of *run*: the forks of Spark's daemon, not the daemon."""
    ours = [each for each in _processes() if each.session == run.pid and WORKER in each.command]
    pids = {each.pid for each in ours}
    return [each for each in ours if each.parent in pids]


def _end_session(run: Run) -> None:
    """Kill *run* and all processes that it started."""
    for each in _processes():
        if each.session == run.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
    run.wait(STOP_SECONDS)


def _processes() -> list[Process]:
    asked = ["ps", "-e", "-o", "pid=,ppid=,sess=,args="]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    fields = [line.split(None, 3) for line in lines]
    return [Process(int(f[0]), int(f[1]), int(f[2]), f[3]) for f in fields if len(f) == 4]
