"""Run Dagster's web server and daemon on the demo's state: `make ui`, until Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import click

from deltamirror.cli.app import CommandLine
from demo.kafka.processes import restore_signals, started_at
from demo.workspace import DemoNotFoundError, DemoWorkspace
from schemas.config.config import CONFIG_VARIABLE
from schemas.errors.base import DeltamirrorError

_STOP_TIMEOUT_S = 60.0
_ROOT = Path(__file__).resolve().parent.parent


class DagsterUiError(DeltamirrorError):
    """Dagster does not stop."""

    message = "`make ui` (process {pid}) did not stop within {waited_seconds:.0f} s"
    hint = "End it with `kill -9 {pid}`."


@click.group(cls=CommandLine, invoke_without_command=True)
def main() -> None:
    """Open Dagster on the demo's state; Ctrl-C ends it."""
    serve(DemoWorkspace(Path(".demo")))


def serve(workspace: DemoWorkspace) -> None:
    """Start the demo's clusters, then become `dagster dev`. Raises DemoNotFoundError."""
    if not workspace.properties.exists():
        raise DemoNotFoundError(workspace.root)
    workspace.start_clusters()
    workspace.dagster.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(_ROOT / "deploy" / "dagster.yaml", workspace.dagster / "dagster.yaml")
    process = {"pid": os.getpid(), "started": started_at(os.getpid())}
    workspace.ui_state.write_text(json.dumps(process))
    click.echo("Dagster starts and prints its address. Ctrl-C ends it; `make down` also stops")
    click.echo("the clusters.")
    # A background shell ignores SIGINT, and Dagster would inherit that.
    restore_signals()
    command = [sys.executable, "-m", "dagster", "dev", "--module-name", "assets.definitions"]
    environment = {
        "DAGSTER_HOME": str(workspace.dagster.absolute()),
        CONFIG_VARIABLE: str(workspace.properties.absolute()),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
        # `dagster dev` recommends another command at every start.
        "PYTHONWARNINGS": "ignore",
    }
    os.execve(sys.executable, command, {**os.environ, **environment})


def stop_running(workspace: DemoWorkspace) -> bool:
    """Stop the `make ui` of *workspace*; return whether it was running. Raises DagsterUiError."""
    try:
        process = json.loads(workspace.ui_state.read_text())
        pid, started = int(process["pid"]), process["started"]
    except (OSError, ValueError, KeyError):
        return False
    if started is None or started_at(pid) != started:
        return False
    os.kill(pid, signal.SIGINT)
    give_up_at = time.monotonic() + _STOP_TIMEOUT_S
    while started_at(pid) == started:
        if time.monotonic() > give_up_at:
            raise DagsterUiError(pid, waited_seconds=_STOP_TIMEOUT_S)
        time.sleep(0.2)
    return True


if __name__ == "__main__":
    main()
