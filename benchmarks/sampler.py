"""Where Python's threads spend their CPU time: a look at each, two hundred times a second.

A thread's CPU time since the last look belongs to the innermost function of ours that it is in:
what pyarrow or zlib do counts for the file that called them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

import schemas

_EVERY_S = 0.005
_SWITCH_S = 0.0005
"""How soon a look gets its turn: as it is, it would wait until calls that let others run."""

_ELSEWHERE = "elsewhere"
PRODUCT = Path(schemas.__file__).resolve().parent.parent
"""Where the packages measured lie: the repository, or where its wheel is installed."""

_OURS = tuple(
    f"{PRODUCT / name}/" for name in ("assets", "deltamirror", "pipeline", "resources", "schemas")
)


class Sampler:
    """Watches the threads of this process in a `with` block.

    Afterwards *files* has the CPU seconds by file, relative to `PRODUCT`; *own_s* are those of
    the looking itself, and *numbers* those that the kernel gave to all threads that are Python's.
    """

    def __init__(self) -> None:
        self.files: defaultdict[str, float] = defaultdict(float)
        self.own_s = 0.0
        self._switch_s = sys.getswitchinterval()
        self._used: dict[int, float] = {}
        self._stop = threading.Event()
        self.numbers: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        sys.setswitchinterval(_SWITCH_S)
        self._look()
        self.files.clear()  # what was before does not count
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        sys.setswitchinterval(self._switch_s)
        self._look()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._look()
        self.own_s = time.thread_time()

    def _look(self) -> None:
        frames = sys._current_frames()
        for thread in threading.enumerate():
            frame, number = frames.get(thread.ident or 0), thread.native_id
            if frame is None or number is None:
                continue
            self.numbers.add(number)
            if thread is self._thread:
                continue
            try:
                used_s = time.clock_gettime(_clock(number))
            except OSError:
                continue  # it has just ended
            spent_s = used_s - self._used.get(number, 0.0)
            self._used[number] = used_s
            if spent_s > 0:
                self.files[_file(frame)] += spent_s


def _clock(number: int) -> int:
    """Return the clock of the CPU time of a thread, by the kernel's number of it.

    As Linux makes them for `pthread_getcpuclockid` (include/linux/posix-timers_types.h), which must
    not be asked about a thread that may have ended.
    """
    return ~number << 3 | 0b110


def _file(frame: FrameType | None) -> str:
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_OURS):
            return str(Path(name).relative_to(PRODUCT))
        frame = frame.f_back
    return _ELSEWHERE
