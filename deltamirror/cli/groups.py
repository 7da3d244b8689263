"""`deltamirror groups`: snapshot the source's consumer groups; plan their target offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.table import Table

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import as_of_option, chosen_sources, flow_option, offset_text

if TYPE_CHECKING:
    from deltamirror.groups.plan import GroupPlan


@click.group("groups", epilog="Example: deltamirror groups snapshot")
def groups() -> None:
    """Snapshot consumer groups and plan their failover."""


@groups.command("snapshot", epilog="Example: deltamirror groups snapshot --cluster us-east")
@click.option("--cluster", "alias", help="Only this source cluster.")
@common_options
@click.pass_context
def snapshot_command(context: click.Context, alias: str | None) -> None:
    """Store the current commits of the source's groups.

    If a group cannot be read, the exit code is 1. The commits of the other groups are stored.
    """
    from deltamirror.groups.snapshots import snapshot_groups

    console: Console = context.obj
    with console.open_context() as mirror_context:
        aliases = chosen_sources(mirror_context.config, alias)
        found = [(each, snapshot_groups(mirror_context, each)) for each in aliases]
    table = Table("cluster", "groups", "changed offsets", "not readable")
    for each, snapshot in found:
        read_errors = "\n".join(snapshot.read_errors)
        table.add_row(each, str(snapshot.groups), str(snapshot.changed), read_errors)
    rows = [
        {"cluster": each, "groups": s.groups, "changed": s.changed, "troubles": list(s.read_errors)}
        for each, s in found
    ]
    console.show({"clusters": rows}, table)
    context.exit(1 if any(snapshot.read_errors for _, snapshot in found) else 0)


@groups.command(
    "plan", epilog="Example: deltamirror groups plan --flow 'us-east->eu-west' --group billing"
)
@flow_option
@click.option("--group", help="Only this group.")
@as_of_option
@common_options
@click.pass_obj
def plan_command(console: Console, flow_name: str, group: str | None, as_of: int | None) -> None:
    """Show the offsets to set for groups on the target.

    The command changes nothing. An offset below the target's log start is raised to the log start,
    and the records that are gone are counted.
    """
    from deltamirror.groups.plan import READ_COMMITTED_NOTE, plan_groups

    with console.open_context() as context:
        flow_config = context.config.flow(flow_name)
        plans = plan_groups(context, flow_config, as_of, group)
    name = flow_config.flow.name
    data = {"flow": name, "note": READ_COMMITTED_NOTE, "groups": [p.to_json(name) for p in plans]}
    console.show(data, lambda: _plan_table(plans, READ_COMMITTED_NOTE))


def _plan_table(plans: list[GroupPlan], note: str) -> Table:
    table = Table(
        "group", "on the target", "partition", "now", "resumes at", "records gone", "action",
        caption=note,
    )  # fmt: skip
    for plan in plans:
        state = plan.state.lower() if plan.is_idle else f"{plan.state.lower()}: stop it first"
        for each in plan.partitions:
            table.add_row(
                plan.group,
                state,
                str(each.at.target),
                "-" if each.current is None else str(each.current),
                offset_text(each.resumes_at),
                str(each.records_gone),
                each.action,
            )
    return table
