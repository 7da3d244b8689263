"""`deltamirror plan`: a dry run. Nothing is made, neither topics nor the lake."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from deltamirror.cli.app import Console, common_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Group

Row = dict[str, Any]


@click.command("plan")
@click.option("--flow", "flow_name", metavar="A->B", help="Only this flow.")
@common_options
@click.pass_context
def plan_command(context: click.Context, flow_name: str | None) -> None:
    """Show what would be created, changed, staged and replayed. Nothing is changed.

    Ends with exit code 1 where something waits for an operator.
    """
    from deltamirror.context import MirrorContext
    from deltamirror.monitoring.dry_run import dry_run

    console: Console = context.obj
    config = console.config()
    flows = [config.flow(flow_name)] if flow_name else list(config.flows)
    with closing(MirrorContext(config)) as mirror_context:
        data = dry_run(mirror_context, flows)
    console.show(data, lambda: _plan_tables(data))
    troubled = any(cluster["troubles"] for cluster in data["clusters"])
    context.exit(1 if troubled or any(flow["refused"] for flow in data["flows"]) else 0)


def _plan_tables(data: Mapping[str, Any]) -> Group:
    from rich.console import Group
    from rich.table import Table

    from schemas.kafka.acl import TopicAcl

    steps = Table(
        "where", "step", "what", title="On the targets and in the lake", title_justify="left"
    )
    for flow in data["flows"]:
        for step in flow["create"]:
            configs = ", ".join(f"{k}={v}" for k, v in sorted(step["configs"].items()))
            text = f"{step['topic']}, {step['partitions']} partitions\n{configs}"
            steps.add_row(flow["flow"], "create topic", text)
        for step in flow["widen"]:
            steps.add_row(flow["flow"], "add partitions", f"{step['topic']}: {step['partitions']}")
        for step in flow["alter"]:
            steps.add_row(flow["flow"], "alter settings", _altered(step))
        for step in flow["acls"]:
            steps.add_row(flow["flow"], "create ACL", str(TopicAcl(**step)))
        for step in flow["refused"]:
            steps.add_row(flow["flow"], "cannot create", step["error"])
    for cluster in data["clusters"]:
        for row in _by_topic(cluster["stage"]):
            steps.add_row(cluster["cluster"], "stage", row)
        for trouble in cluster["troubles"]:
            text = f"{trouble['message']}\n{trouble['hint']}"
            steps.add_row(cluster["cluster"], "waits for you", text)
    for flow in data["flows"]:
        for row in _by_topic(flow["replay"]):
            steps.add_row(flow["flow"], "replay", row)
        if flow["error"]:
            steps.add_row(flow["flow"], "not known", flow["error"])
    left_out = Table("flow", "not mirrored", "why", title="Left out", title_justify="left")
    for flow in data["flows"]:
        for topic in flow["not_mirrored"]:
            left_out.add_row(flow["flow"], topic["topic"], topic["reason"])
    done = steps if steps.row_count else "Nothing to do: in sync."
    return Group(done, *([left_out] if left_out.row_count else []))


def _altered(step: Row) -> str:
    """Return a topic and a line for each setting that would change, the default where it is."""
    lines = [
        f"{name}: {step['before'][name] or 'default'} -> {value or 'default'}"
        for name, value in sorted(step["configs"].items())
    ]
    return "\n".join([step["topic"], *lines])


def _by_topic(ranges: Sequence[Row]) -> list[str]:
    """Return a line for each topic: how many partitions have how many offsets to go."""
    lines = []
    for topic in dict.fromkeys(each["topic"] for each in ranges):
        own = [each for each in ranges if each["topic"] == topic]
        offsets = sum(each["end"] - each["start"] for each in own)
        places = ", ".join(f"[{r['partition']}] {r['start']} to {r['end']}" for r in own[:4])
        more = f", and {len(own) - 4} more partitions" if len(own) > 4 else ""
        lines.append(f"{topic}: {offsets} offsets ({places}{more})")
    return lines
