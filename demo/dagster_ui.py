"""`make ui`: Dagster's web server and daemon on the demo's state, until Ctrl-C."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console

from deltamirror.cli.app import CommandLine
from demo.kafka.processes import started_at
from demo.workspace import DemoNotFoundError, DemoWorkspace
from schemas.config.config import CONFIG_VARIABLE
from schemas.errors import DeltamirrorError

HOST = "127.0.0.1"
PORTS = range(3000, 3100)
START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.2
_ROOT = Path(__file__).resolve().parent.parent


class DagsterUiError(DeltamirrorError):
    """Dagster does not start or does not end."""


@click.group(cls=CommandLine, invoke_without_command=True)
def main() -> None:
    """Open Dagster on the demo's state; Ctrl-C ends it."""
    serve(DemoWorkspace(Path(".demo")), Console(highlight=False))


def serve(workspace: DemoWorkspace, console: Console) -> None:
    """Run Dagster on *workspace* until SIGINT or SIGTERM, with the demo's clusters up.

    Raises DemoNotFoundError where no demo was made, DagsterUiError where Dagster does not start.
    """
    if not workspace.exists:
        raise DemoNotFoundError(workspace.root)
    # Before the child starts: a caught signal is the default again in the child. Dagster would
    # else inherit a background shell's ignored SIGINT, and never end.
    stop = threading.Event()
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, lambda *_: stop.set())
    workspace.start_clusters()
    port = free_port()
    log = workspace.dagster / "ui.log"
    child = _start_dagster(workspace, port, log)
    try:
        me = {"pid": os.getpid(), "started": started_at(os.getpid())}
        _state_file(workspace).write_text(json.dumps(me))
        console.print(f"Dagster starts (its log: {log}) ...")
        _wait_until_ready(child, port, log, stop)
        if not stop.is_set():
            console.print(f"Open [bold]http://{HOST}:{port}[/bold]    Ctrl-C ends it.")
        while child.poll() is None and not stop.wait(_POLL_INTERVAL_S):
            pass
        if not stop.is_set():
            raise DagsterUiError("Dagster has ended unexpectedly", hint=f"Read its log in {log}.")
    finally:
        _stop_dagster(child)
        _state_file(workspace).unlink(missing_ok=True)
    console.print("Dagster has ended; the clusters still run: `make down` ends them.")


def stop_running(workspace: DemoWorkspace) -> bool:
    """End the `make ui` that serves *workspace* from another terminal; False: there is none.

    Raises DagsterUiError where it does not end.
    """
    try:
        said = json.loads(_state_file(workspace).read_text())
        pid, started = int(said["pid"]), said["started"]
    except (OSError, ValueError, KeyError):
        return False
    if started is None or started_at(pid) != started:
        return False
    os.kill(pid, signal.SIGTERM)
    give_up_at = time.monotonic() + STOP_TIMEOUT_S + 5
    while started_at(pid) == started:
        if time.monotonic() > give_up_at:
            raise DagsterUiError(
                f"`make ui` (process {pid}) does not end", hint=f"End it with `kill {pid}`."
            )
        time.sleep(_POLL_INTERVAL_S)
    return True


def free_port() -> int:
    """Return the first port from 3000 on that nobody listens on. Raises DagsterUiError: none."""
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do: a port whose last connections are still winding up is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return port
    raise DagsterUiError(
        f"ports {PORTS.start} to {PORTS.stop - 1} are all taken", hint="End one of them."
    )


def _start_dagster(workspace: DemoWorkspace, port: int, log: Path) -> subprocess.Popen[bytes]:
    workspace.dagster.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(_ROOT / "deploy" / "dagster.yaml", workspace.dagster / "dagster.yaml")
    command = [sys.executable, "-m", "dagster", "dev", "--module-name", "assets.definitions"]
    with log.open("wb") as output:
        # A session of its own: Ctrl-C comes to us alone, and we end the whole group.
        return subprocess.Popen(
            [*command, "--host", HOST, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_environment(workspace)},
            start_new_session=True,
        )


def _environment(workspace: DemoWorkspace) -> Mapping[str, str]:
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return {
        "DAGSTER_HOME": str(workspace.dagster.absolute()),
        CONFIG_VARIABLE: str(workspace.properties.absolute()),
        "PYTHONPATH": path,
        # `dagster dev` recommends another command at every start.
        "PYTHONWARNINGS": "ignore",
    }


def _wait_until_ready(
    child: subprocess.Popen[bytes], port: int, log: Path, stop: threading.Event
) -> None:
    give_up_at = time.monotonic() + START_TIMEOUT_S
    while not stop.wait(_POLL_INTERVAL_S):
        if child.poll() is not None or time.monotonic() > give_up_at:
            raise DagsterUiError(
                "Dagster's web server did not start", hint=f"Read its log in {log}."
            )
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(HOST, port, timeout=5)
            connection.request("GET", "/server_info")
            if connection.getresponse().status == http.client.OK:
                return


def _stop_dagster(child: subprocess.Popen[bytes]) -> None:
    """End Dagster's processes in good order, and by force those that do not go."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _state_file(workspace: DemoWorkspace) -> Path:
    return workspace.root / "ui.json"


if __name__ == "__main__":
    main()
