"""Sampler of the CPU time of Python's threads by source file, two hundred times a second.

A thread's CPU time since the last sample is added to the file of its innermost frame in our code.
So the time of pyarrow or zlib counts for the file that called them.
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
"""Switch interval of the interpreter. With the default, a sample would wait for calls that release
the interpreter lock."""

_ELSEWHERE = "elsewhere"
PRODUCT = Path(schemas.__file__).resolve().parent.parent
"""Folder of the measured packages: the repository, or the folder of its installed wheel."""

_OURS = tuple(
    f"{PRODUCT / name}/" for name in ("assets", "deltamirror", "pipeline", "resources", "schemas")
)


class Sampler:
    """Sample the threads of this process in a `with` block.

    Afterwards *files* has the CPU seconds by file, relative to `PRODUCT`. *own_s* has the CPU
    seconds of the sampler itself. *numbers* has the kernel's ids of all Python threads.
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
        self.files.clear()  # drop the time before the block
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
                continue  # the thread has just ended
            spent_s = used_s - self._used.get(number, 0.0)
            self._used[number] = used_s
            if spent_s > 0:
                self.files[_file(frame)] += spent_s


def _clock(number: int) -> int:
    """Return the id of the CPU clock of the thread with the kernel's id *number*.

    It is computed as Linux does (include/linux/posix-timers_types.h). `pthread_getcpuclockid` must
    not be called for a thread that may have ended.
    """
    return ~number << 3 | 0b110


def _file(frame: FrameType | None) -> str:
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_OURS):
            return str(Path(name).relative_to(PRODUCT))
        frame = frame.f_back
    return _ELSEWHERE
