"""`make demo`: two real clusters, real data, a mirror between them, a failover, and a proof.

Everything it leaves is in `.demo`; run again it goes on from there and copies nothing twice.
"""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from deltamirror.cli.app import CommandLine
from demo import dagster_ui as ui
from demo.kafka import brokers
from demo.workspace import DemoWorkspace


@click.group(cls=CommandLine, invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Show what deltamirror does, on two clusters that it starts on this machine."""
    if context.invoked_subcommand is None:
        from demo.walkthrough import run_walkthrough

        run_walkthrough(DemoWorkspace(Path(".demo")), Console(highlight=False))


@main.command()
def down() -> None:
    """End what the demo and its UI left running. The data stays for the next time."""
    workspace = DemoWorkspace(Path(".demo"))
    ended = ["Dagster"] if ui.stop_running(workspace) else []
    ended += brokers.stop_brokers(workspace.kafka)
    click.echo(f"ended {', '.join(ended)}" if ended else "nothing runs")


if __name__ == "__main__":
    main()
