"""`python -m demo.kafka`: start and stop local Apache Kafka brokers."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from deltamirror.cli.app import CommandLine
from demo.kafka import brokers

DEFAULT_NAMES = ("us-east", "eu-west")
DEFAULT_HOME = Path(".deltamirror") / "kafka"

_home = click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_HOME,
    show_default=True,
    help="Folder of the brokers' data, logs and state.",
)
_format = click.option(
    "--format",
    "output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print the result.",
)


@click.group(cls=CommandLine)
def main() -> None:
    """Start and stop local Kafka brokers: one process each, no containers."""


@main.command("up")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_home
@_format
def up_command(names: tuple[str, ...], home: Path, output: str) -> None:
    """Start a broker per NAME (us-east and eu-west if none is given) and leave them running.

    A broker that runs already is left as it is; one that was stopped comes back with its data.
    """
    servers = brokers.start_brokers(names or DEFAULT_NAMES, home)
    running = [broker for broker in brokers.brokers(home) if broker.name in servers]
    rows = [
        {
            "name": broker.name,
            "bootstrap_servers": broker.bootstrap_servers,
            "pid": broker.pid,
            "log": str(broker.log),
        }
        for broker in running
    ]
    if output == "json":
        click.echo(json.dumps({"brokers": rows}))
        return
    table = Table("cluster", "bootstrap servers", "pid", "log")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)


@main.command("down")
@click.option("--forget", is_flag=True, help="Delete their data too.")
@_home
@_format
def down_command(forget: bool, home: Path, output: str) -> None:
    """Stop the brokers that `up` started. Their data stays for the next `up`."""
    stopped = brokers.stop_brokers(home, forget=forget)
    if output == "json":
        click.echo(json.dumps({"stopped": stopped}))
    elif stopped:
        click.echo(f"stopped {', '.join(stopped)}")
    else:
        click.echo(f"no broker runs in {home}")


if __name__ == "__main__":
    main()
