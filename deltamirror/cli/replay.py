"""`deltamirror replay`: what was staged, once more, to a topic of its own."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import flow_option, time_ms
from schemas.replay.point_in_time import Selection

if TYPE_CHECKING:
    from rich.console import Group

    from deltamirror.replay.point_in_time import ReplayPlan

TIME = "ISO 8601 or ms since 1970."


@click.command("replay")
@flow_option
@click.option("--topic", required=True, metavar="T", help="The topic of the source.")
@click.option("--as-of", type=time_ms, metavar="TIME", help=f"What was staged at this time. {TIME}")
@click.option("--from-offset", type=click.IntRange(0), help="From this offset of the source on.")
@click.option("--to-offset", type=click.IntRange(0), help="Up to this offset, not included.")
@click.option(
    "--from-time", type=time_ms, metavar="TIME", help=f"From the first record as young. {TIME}"
)
@click.option(
    "--to-time",
    type=time_ms,
    metavar="TIME",
    help=f"Up to the first as young, not included. {TIME}",
)
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--target-topic", metavar="X", help="Where to; new or empty.  [default: a new one]")
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
    """Write staged records of a topic to a topic of their own on the target, in their order.

    For audits: the same plan gives the same records in the same order. The mirror goes on
    meanwhile, untouched.
    """
    from deltamirror.context import MirrorContext
    from deltamirror.replay.point_in_time import replay_point_in_time

    ways = [as_of], [from_offset, to_offset], [from_time, to_time]
    if sum(any(value is not None for value in way) for way in ways) > 1:
        raise click.UsageError("choose one of --as-of, --from/--to-offset and --from/--to-time")
    selection = Selection(partition, as_of, from_offset, to_offset, from_time, to_time)
    config = console.config()
    with closing(MirrorContext(config)) as context:
        plan, records = replay_point_in_time(
            context, flow_name, topic, selection, target_topic, dry_run=dry_run
        )
    state = {"state": "dry run" if dry_run else "done", "records": None if dry_run else records}
    console.show({**plan.to_json(), **state}, lambda: _result_table(plan, records, dry_run))


def _result_table(plan: ReplayPlan, records: int, dry_run: bool) -> Group:
    from rich.console import Group
    from rich.table import Table

    table = Table("partition", "incarnation", "from offset", "to offset")
    for each in plan.ranges:
        name = f"{plan.topic}[{each.partition}]"
        table.add_row(name, each.incarnation, str(each.start), str(each.end))
    where = f"{plan.target_topic} on {plan.flow.flow.target}"
    done = f"{records:,} records written to {where} (replay {plan.replay_id})"
    return Group(table, f"nothing was written; it would go to {where}" if dry_run else done)
