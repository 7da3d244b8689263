"""Entry point `deltamirror`. Each command is in its own file of `deltamirror/cli/`.

Commands import Dagster, Spark, Kafka's client and Delta inside their functions, so that
`deltamirror --help` prints at once.
"""

from __future__ import annotations

import click

from deltamirror.cli.app import CommandLine, common_options
from deltamirror.cli.config import config_group
from deltamirror.cli.control import accept_gap_command, pause_command, resume_command
from deltamirror.cli.gaps import gaps_command
from deltamirror.cli.groups import groups
from deltamirror.cli.maintain import maintain_command
from deltamirror.cli.mm2 import export_command, import_command
from deltamirror.cli.plan import plan_command
from deltamirror.cli.replay import replay_command
from deltamirror.cli.run import run_command
from deltamirror.cli.status import lag_command, status_command
from deltamirror.cli.translate import translate_command
from deltamirror.cli.verify import verify_command


@click.group(
    cls=CommandLine,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: deltamirror run --config mm2.properties",
)
@click.version_option(package_name="deltamirror")
@common_options
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
):
    main.add_command(command)
