"""`deltamirror`: what an operator types. Each command is in a file `cli_<what>.py` of its own.

Dagster, Spark, Kafka's client and Delta are imported inside the commands that need them, so that
`deltamirror --help` answers at once.
"""

from __future__ import annotations

import click

from assets.cli_kafka import kafka
from assets.console import CommandLine, options


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="deltamirror")
@options
def main() -> None:
    """Mirror Kafka topics, their settings and consumer groups through Delta Lake, exactly once."""


main.add_command(kafka)


if __name__ == "__main__":
    main()
