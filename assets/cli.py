"""`deltamirror`: what an operator types. Each command is in a file `cli_<what>.py` of its own.

Dagster, Spark, Kafka's client and Delta are imported inside the commands that need them, so that
`deltamirror --help` answers at once.
"""

from __future__ import annotations

import click

from assets.cli_config import config_group
from assets.cli_gaps import gaps_command
from assets.cli_groups import groups
from assets.cli_import import export_command, import_command
from assets.cli_kafka import kafka
from assets.cli_maintain import maintain_command
from assets.cli_orders import accept_gap_command, pause_command, resume_command
from assets.cli_plan import plan_command
from assets.cli_replay import replay_command
from assets.cli_run import run_command
from assets.cli_status import lag_command, status_command
from assets.cli_translate import translate_command
from assets.cli_verify import verify_command
from assets.console import CommandLine, options


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="deltamirror")
@options
def main() -> None:
    """Mirror Kafka topics, their settings and consumer groups through Delta Lake, exactly once."""


for command in (
    run_command,
    plan_command,
    status_command,
    lag_command,
    verify_command,
    gaps_command,
    translate_command,
    groups,
    replay_command,
    import_command,
    export_command,
    accept_gap_command,
    pause_command,
    resume_command,
    maintain_command,
    config_group,
    kafka,
):
    main.add_command(command)


if __name__ == "__main__":
    main()
