"""Measure the peak memory of `deltamirror run`: driver, JVM and workers together."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.ground import Ground
from benchmarks.meter import PeakMemory

_RUN_S = 300.0


def measure(ground: Ground, alias: str, topic: str) -> int:
    """Return the peak in bytes of a process that mirrors all of *topic*, from start to end.

    Raises RuntimeError with the end of its log if it fails.
    """
    file = ground.settings_file(alias, topic)
    command = [sys.executable, "-m", "deltamirror", "--config", str(file), "run"]
    command.append("--until-caught-up")
    log = file.with_name("run.log")
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        memory = PeakMemory(process.pid)
        try:
            with memory.watch():
                status = process.wait(_RUN_S)
        except BaseException:
            process.kill()
            raise
    if status:
        raise RuntimeError(
            f"{' '.join(command[1:3])} ended with {status}: {log.read_text()[-500:]}"
        )
    return memory.peak_bytes
