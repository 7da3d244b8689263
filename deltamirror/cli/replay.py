"""`deltamirror replay`: write staged records to a separate topic."""

from __future__ import annotations

import click
from rich.console import Group
from rich.table import Table

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import flow_option, time_ms
from schemas.replay.point_in_time import Selection

TIME = "ISO 8601 or ms since 1970."


@click.command(
    "replay", epilog="Example: deltamirror replay --flow 'A->B' --topic orders --dry-run"
)
@flow_option
@click.option("--topic", required=True, metavar="T", help="The source topic.")
@click.option(
    "--as-of", type=time_ms, metavar="TIME", help=f"The records staged at or before TIME. {TIME}"
)
@click.option("--from-offset", type=click.IntRange(0), help="From this source offset.")
@click.option("--to-offset", type=click.IntRange(0), help="Up to this source offset, exclusive.")
@click.option(
    "--from-time",
    type=time_ms,
    metavar="TIME",
    help=f"From the first record with a timestamp at or after TIME. {TIME}",
)
@click.option(
    "--to-time",
    type=time_ms,
    metavar="TIME",
    help=f"Up to the first record with a timestamp at or after TIME, exclusive. {TIME}",
)
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option(
    "--target-topic",
    metavar="X",
    help="The topic to write to; it must not exist or be empty.  [default: a new topic]",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and write nothing.")
@common_options
@click.pass_obj
def replay_command(
    console: Console,
    flow_name: str,
    topic: str,
    as_of: int | None,
    from_offset: int | None,
    to_offset: int | None,
    from_time: int | None,
    to_time: int | None,
    partition: int | None,
    target_topic: str | None,
    dry_run: bool,
) -> None:
    """Write staged records to a separate target topic.

    For audits: the same plan gives the same records in the same order. Mirroring is not affected
    and continues meanwhile.
    """
    from deltamirror.replay.point_in_time import replay_point_in_time

    ways = (as_of,), (from_offset, to_offset), (from_time, to_time)
    if sum(any(value is not None for value in way) for way in ways) > 1:
        raise click.UsageError(
            "--as-of, --from-offset/--to-offset and --from-time/--to-time cannot be combined"
        )
    selection = Selection(partition, as_of, from_offset, to_offset, from_time, to_time)
    with console.open_context() as context:
        plan, records = replay_point_in_time(
            context, flow_name, topic, selection, target_topic, dry_run=dry_run
        )
    table = Table("partition", "incarnation", "from offset", "to offset")
    for each in plan.ranges:
        name = f"{plan.topic}[{each.partition}]"
        table.add_row(name, each.incarnation, str(each.start), str(each.end))
    where = f"{plan.target_topic} on {plan.flow.flow.target}"
    state: dict[str, object]
    if dry_run:
        state = {"state": "dry run", "records": None}
        text = f"Dry run: nothing was written. The records would be written to {where}"
    else:
        state = {"state": "done", "records": records}
        text = f"{records:,} records written to {where} (replay {plan.replay_id})"
    console.show({**plan.to_json(), **state}, Group(table, text))
