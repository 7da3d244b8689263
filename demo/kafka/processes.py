"""Identify processes, reset signals and find free ports for local brokers."""

from __future__ import annotations

import contextlib
import errno
import random
import signal
import socket
import subprocess
import threading
from pathlib import Path

# Below the ephemeral range: no outgoing connection takes the port of a server that restarts.
_PORTS = range(20_000, 32_000)
_USED_PORTS: set[int] = set()  # a returned port is free until its server listens
_PORTS_LOCK = threading.Lock()
# Not `random`: after a seed or a fork it would return the same ports.
_RANDOM = random.SystemRandom()


def started_at(pid: int) -> str | None:
    """Return the start time of process *pid* as the system prints it; None if it does not run.

    Process ids are reused: the id and the start time together identify a process.
    """
    if not Path("/proc/self/stat").exists():
        asked = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip() or None
    try:
        # The fields after the program's name, which may contain blanks and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]  # a zombie has ended


def restore_signals() -> None:
    """Reset SIGHUP, SIGINT and SIGTERM before this process becomes another program.

    A background job of a shell ignores SIGINT, and a JVM keeps ignored signals ignored. With SIGHUP
    and SIGINT ignored, MirrorMaker 2 took a minute to end.
    """
    for which in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(which, signal.SIG_DFL)


def free_ports(count: int) -> list[int]:
    """Return *count* unused ports of 127.0.0.1, each once per process. Raises OSError."""
    with _PORTS_LOCK:
        return [_free_port() for _ in range(count)]


def _free_port() -> int:
    for port in _RANDOM.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do: a port with connections in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            if port not in _USED_PORTS:
                _USED_PORTS.add(port)
                return port
    raise OSError(errno.EADDRINUSE, f"ports {_PORTS.start} to {_PORTS.stop - 1} are all taken")
