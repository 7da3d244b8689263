"""`deltamirror plan`: a dry run. It creates neither topics nor the lake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.console import Group
from rich.table import Table

from deltamirror.cli.app import Console, common_options
from schemas.kafka.acl import TopicAcl

Row = dict[str, Any]


@click.command("plan", epilog="Example: deltamirror plan --flow 'us-east->eu-west'")
@click.option("--flow", "flow_name", metavar="A->B", help="Only this flow.")
@common_options
@click.pass_context
def plan_command(context: click.Context, flow_name: str | None) -> None:
    """Show what `run` would do. Nothing is changed.

    The plan lists what would be created, changed, staged and replayed. The exit code is 1 if a
    partition waits for an operator or a topic cannot be created.
    """
    from deltamirror.monitoring.dry_run import dry_run

    console: Console = context.obj
    with console.open_context() as mirror_context:
        config = mirror_context.config
        data = dry_run(mirror_context, [config.flow(flow_name)] if flow_name else config.flows)
    console.show(data, lambda: _plan_tables(data))
    is_blocked = any(cluster["troubles"] for cluster in data["clusters"])
    context.exit(1 if is_blocked or any(flow["refused"] for flow in data["flows"]) else 0)


def _plan_tables(data: Mapping[str, Any]) -> Group:
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
            configs = "\n".join(
                f"{name}: {step['before'][name] or 'default'} -> {value or 'default'}"
                for name, value in sorted(step["configs"].items())
            )
            steps.add_row(flow["flow"], "alter settings", f"{step['topic']}\n{configs}")
        for step in flow["acls"]:
            steps.add_row(flow["flow"], "create ACL", str(TopicAcl(**step)))
        for step in flow["refused"]:
            steps.add_row(flow["flow"], "cannot create", step["error"])
    for cluster in data["clusters"]:
        for row in _by_topic(cluster["stage"]):
            steps.add_row(cluster["cluster"], "stage", row)
        for error in cluster["troubles"]:
            text = f"{error['message']}\n{error['hint']}"
            steps.add_row(cluster["cluster"], "waits for you", text)
    for flow in data["flows"]:
        for row in _by_topic(flow["replay"]):
            steps.add_row(flow["flow"], "replay", row)
        if flow["error"]:
            steps.add_row(flow["flow"], "unknown", flow["error"])
    left_out = Table("flow", "not mirrored", "reason", title="Left out", title_justify="left")
    for flow in data["flows"]:
        for topic in flow["not_mirrored"]:
            left_out.add_row(flow["flow"], topic["topic"], topic["reason"])
    done = steps if steps.row_count else "Nothing to do: in sync."
    return Group(done, *([left_out] if left_out.row_count else []))


def _by_topic(ranges: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each topic: its number of remaining offsets, and its first 4 ranges."""
    for topic in dict.fromkeys(each["topic"] for each in ranges):
        own = [each for each in ranges if each["topic"] == topic]
        offsets = sum(each["end"] - each["start"] for each in own)
        shown = ", ".join(f"[{r['partition']}] {r['start']} to {r['end']}" for r in own[:4])
        more = f", and {len(own) - 4} more partitions" if len(own) > 4 else ""
        yield f"{topic}: {offsets} offsets ({shown}{more})"
