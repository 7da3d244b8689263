"""`deltamirror run`: mirror until stopped, as MirrorMaker 2's dedicated mode does."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import flows_option


@click.command("run", epilog="Example: deltamirror run --until-caught-up")
@click.option(
    "--clusters",
    metavar="B,...",
    help="Only flows into these clusters, as MirrorMaker 2's --clusters.",
)
@flows_option
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End when every record that the sources had at the start has been replayed.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="Wait for flows that other processes replay. Take over a flow after its process ended.",
)
@common_options
@click.pass_obj
def run_command(
    console: Console,
    clusters: str | None,
    flow_names: tuple[str, ...],
    until_caught_up: bool,
    standby: bool,
) -> None:
    """Mirror until stopped with Ctrl-C or SIGTERM.

    The command stages every source and replays every flow.
    """
    from deltamirror.cli.progress import RunProgressListener
    from deltamirror.listener import installed_listeners
    from deltamirror.monitoring.metrics_server import serve_metrics
    from deltamirror.run.supervisor import Mirror

    if standby and until_caught_up:
        raise click.UsageError(
            "--standby and --until-caught-up cannot be used together: a standby waits without end"
        )

    config = console.config()
    # To stderr: warnings of all packages, and deltamirror's own messages from INFO.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("deltamirror").setLevel(logging.INFO)
    stop = threading.Event()
    listener = RunProgressListener(is_quiet=console.format == "json" or not sys.stderr.isatty())
    run = Mirror(
        config,
        flows=flow_names or None,
        targets=[alias.strip() for alias in clusters.split(",")] if clusters else None,
        until_caught_up=until_caught_up,
        listeners=[listener, *installed_listeners()],
        stop=stop,
        is_standby=standby,
    )
    metrics = serve_metrics(config.metrics_listen, run.metrics_state)
    with _stop_on_signals(stop), metrics, listener.bars:
        run.run()
    data = listener.summary()
    console.show(data, f"staged {data['staged']:,} records, replayed {data['replayed']:,} records")
    _exit_if_loops_hang()


@contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set *stop* on the first SIGINT or SIGTERM; end the process at once on the second."""

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
    """End the process at once if a loop still runs. The next run recovers its open transaction."""
    if any(t.daemon and t.name.startswith(("stage ", "replay ")) for t in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
