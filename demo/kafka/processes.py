"""This machine's processes and ports, as far as local brokers need them."""

from __future__ import annotations

import contextlib
import errno
import random
import signal
import socket
import subprocess
import threading
from pathlib import Path

# Below the range that outgoing connections take theirs from: a server that is down for a moment
# finds its port free again.
_PORTS = range(20_000, 32_000)
_USED_PORTS: set[int] = set()  # a port that was given away is free until its server listens
_PORTS_LOCK = threading.Lock()
_RANDOM = random.SystemRandom()  # its own: a seed, or a fork, would give the same ports twice


def started_at(pid: int) -> str | None:
    """Return when process *pid* began, in the system's own words; None if it does not run.

    A number is given to another process one day: number and beginning together name one.
    """
    if not Path("/proc/self/stat").exists():
        asked = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip() or None
    try:
        # What follows the program's name, which may itself hold blanks and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    has_ended = fields[0] == "Z"
    return None if has_ended else fields[19]


def restore_signals() -> None:
    """Let this process, which is about to become another program, hear what ends it.

    A JVM leaves alone what is ignored when it starts, and a shell's background job, or Dagster in
    one, has SIGINT and SIGTERM ignored. With SIGHUP and SIGINT ignored MirrorMaker 2 was seen to
    need a minute to end.
    """
    for which in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(which, signal.SIG_DFL)


def free_ports(count: int) -> list[int]:
    """Return *count* ports of 127.0.0.1 that nobody listens on, and that this never gave before.

    Raises OSError: there are no more.
    """
    with _PORTS_LOCK:
        return [_free_port() for _ in range(count)]


def _free_port() -> int:
    for port in _RANDOM.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do: a port whose last connections are still winding up is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            if port not in _USED_PORTS:
                _USED_PORTS.add(port)
                return port
    raise OSError(errno.EADDRINUSE, f"ports {_PORTS.start} to {_PORTS.stop - 1} are all taken")
