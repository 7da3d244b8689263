"""`python -m tests.chaos`: table on stderr, JSON on stdout; exit code 1 if something is wrong."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from tests.chaos.run import chaos


@click.command(context_settings={"show_default": True})
@click.option("--seed", type=int, default=1, help="Which disasters, in which order.")
@click.option("--seconds", type=click.FloatRange(1), default=60, help="How long disasters happen.")
def main(seed: int, seconds: float) -> None:
    """Kill, freeze and cut a running mirror at random, then compare every record."""
    # Handle SIGTERM as Ctrl-C, so that brokers and runs end with this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shown = Console(stderr=True, width=None if sys.stderr.isatty() else 120, highlight=False)
    home = Path(tempfile.mkdtemp(prefix="deltamirror-chaos-"))
    try:
        findings = chaos(home, seed, seconds, lambda line: shown.print(line, markup=False))
    except BaseException:
        shown.print(f"broken off: {home} holds the logs", markup=False)
        raise
    shown.print(findings.table())
    click.echo(json.dumps(findings.to_json(), indent=2))
    if findings.wrong:
        shown.print(f"{home} holds lake and logs", markup=False)
        sys.exit(1)
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
