"""`python -m demo`: run the demo; `python -m demo down`: stop what it left running."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from deltamirror.cli.app import CommandLine
from demo.dagster_ui import stop_running
from demo.kafka.brokers import stop_brokers
from demo.walkthrough import run_walkthrough
from demo.workspace import DemoWorkspace


@click.group(cls=CommandLine, invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Show what deltamirror does, on two clusters that it starts on this machine."""
    if context.invoked_subcommand is None:
        run_walkthrough(DemoWorkspace(Path(".demo")), Console(highlight=False))


@main.command()
def down() -> None:
    """Stop the demo's clusters and its Dagster. The data stays in .demo."""
    workspace = DemoWorkspace(Path(".demo"))
    stopped = ["Dagster"] if stop_running(workspace) else []
    stopped += stop_brokers(workspace.kafka)
    click.echo(f"stopped {', '.join(stopped)}" if stopped else "nothing runs")


if __name__ == "__main__":
    main()
