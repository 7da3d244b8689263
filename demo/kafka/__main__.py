"""`python -m demo.kafka`: start and stop local Apache Kafka brokers."""

from __future__ import annotations

from pathlib import Path

import click

from deltamirror.cli.app import CommandLine
from demo.kafka import brokers

DEFAULT_NAMES = ("us-east", "eu-west")

_home = click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".deltamirror") / "kafka",
    show_default=True,
    help="Folder of the brokers' data, logs and state.",
)


@click.group(cls=CommandLine)
def main() -> None:
    """Start and stop local Kafka brokers: one process each, no containers."""


@main.command("up")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_home
def up_command(names: tuple[str, ...], home: Path) -> None:
    """Start a broker per NAME (default: us-east and eu-west) and leave them running.

    A broker that is running stays as it is. A stopped broker starts with its data.
    """
    for name, address in brokers.start_brokers(names or DEFAULT_NAMES, home).items():
        click.echo(f"{name}  {address}")


@main.command("down")
@click.option("--forget", is_flag=True, help="Delete their data too.")
@_home
def down_command(forget: bool, home: Path) -> None:
    """Stop the brokers that `up` started. Their data stays for the next `up`."""
    stopped = brokers.stop_brokers(home, forget=forget)
    click.echo(f"stopped {', '.join(stopped)}" if stopped else f"no broker runs in {home}")


if __name__ == "__main__":
    main()
