"""`deltamirror run`: MirrorMaker 2's dedicated mode."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from deltamirror.cli.app import Console, common_options

if TYPE_CHECKING:
    from deltamirror.cli.progress import RunProgressListener


@click.command("run")
@click.option("--clusters", metavar="B,...", help="Only flows into these clusters, as MM2 has it.")
@click.option("--flow", "flows", multiple=True, metavar="A->B", help="Only this flow; repeatable.")
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End when everything that the sources held at the start has arrived.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="Wait for flows that other processes replay; take over each whose process has died.",
)
@common_options
@click.pass_obj
def run_command(
    console: Console,
    clusters: str | None,
    flows: tuple[str, ...],
    until_caught_up: bool,
    standby: bool,
) -> None:
    """Stage every source and replay every flow, until stopped (Ctrl-C or SIGTERM)."""
    from deltamirror.cli.progress import RunProgressListener
    from deltamirror.listener import installed_listeners
    from deltamirror.monitoring.metrics_server import serve_metrics
    from deltamirror.run.supervisor import build_mirror

    if standby and until_caught_up:
        raise click.UsageError("--standby waits for ever: it does not go with --until-caught-up")

    config = console.config()
    targets = [alias.strip() for alias in clusters.split(",")] if clusters else None
    _log_to_stderr()
    stop = threading.Event()
    listener = RunProgressListener(is_quiet=console.format == "json" or not sys.stderr.isatty())
    run = build_mirror(
        config,
        flows=flows or None,
        targets=targets,
        until_caught_up=until_caught_up,
        listeners=[listener, *installed_listeners()],
        stop=stop,
        is_standby=standby,
    )
    with _stop_on_signals(stop), serve_metrics(config.metrics_listen, run.metrics_state), listener:
        run.run()
    _print_summary(console, listener)
    _exit_if_loops_hang()


def _print_summary(console: Console, listener: RunProgressListener) -> None:
    data = listener.summary()
    console.show(data, f"staged {data['staged']:,} records, replayed {data['replayed']:,} records")


def _log_to_stderr() -> None:
    """Send warnings and what loops say to stderr, a line each."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    logging.getLogger("deltamirror").setLevel(logging.INFO)


@contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM set *stop*; a second one ends the process at once."""

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_if_loops_hang() -> None:
    """End the process now if a loop has not come back: what it does is settled by the next run."""
    if any(t.daemon and t.name.startswith(("stage ", "replay ")) for t in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
