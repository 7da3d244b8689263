"""`deltamirror import-mm2` and `export-mm2`: take over from MirrorMaker 2, and hand back to it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from deltamirror.cli.app import Console, common_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from deltamirror.mm2.export_flow import Mm2Export
    from deltamirror.mm2.import_flow import ImportedPartition, Mm2Import
    from schemas.errors.base import DeltamirrorError


@click.command("import-mm2", epilog="Example: deltamirror import-mm2 --dry-run")
@click.option("--flow", "flow_name", metavar="A->B", help="Only this flow.")
@click.option("--dry-run", is_flag=True, help="Stage and compare, but import nothing.")
@common_options
@click.pass_context
def import_command(context: click.Context, flow_name: str | None, dry_run: bool) -> None:
    """Take over from a stopped MirrorMaker 2.

    MirrorMaker 2 must have run with the same file. The command reads its source offsets and offset
    syncs, stages the source and finds each staged record on the target. Replay then continues at
    the next record. The exit code is 1 if a partition is not imported.
    """
    from deltamirror.context import MirrorContext
    from deltamirror.mm2.import_flow import import_mm2
    from resources.spark.session import SparkWorkers

    console: Console = context.obj
    config = console.config()
    flows = [config.flow(flow_name)] if flow_name else list(config.flows)
    with closing(MirrorContext(config)) as mirror_context:
        workers = SparkWorkers(config.tasks_max)
        done = [import_mm2(mirror_context, flow, workers, is_dry_run=dry_run) for flow in flows]
    console.show({"flows": [_import_json(each) for each in done]}, lambda: _import_table(done))
    context.exit(1 if any(each.errors for each in done) else 0)


@click.command("export-mm2", epilog="Example: deltamirror export-mm2 --flow 'us-east->eu-west'")
@click.option("--flow", "flow_name", metavar="A->B", help="Only this flow.")
@common_options
@click.pass_context
def export_command(context: click.Context, flow_name: str | None) -> None:
    """Hand flows back to MirrorMaker 2.

    Stop `deltamirror run` first. The command writes progress in MirrorMaker 2's own format, so that
    MirrorMaker 2 continues at the next record when it is started. It also pauses the flow in
    deltamirror; `import-mm2` takes it back. The exit code is 1 if a partition cannot be exported.
    """
    from rich.table import Table

    from deltamirror.context import MirrorContext
    from deltamirror.mm2.export_flow import export_mm2

    console: Console = context.obj
    config = console.config()
    flows = [config.flow(flow_name)] if flow_name else list(config.flows)
    with closing(MirrorContext(config)) as mirror_context:
        done = [export_mm2(mirror_context, flow) for flow in flows]
    table = Table("flow", "partition", "MirrorMaker 2 continues at")
    for each in done:
        for at, offset in sorted(each.next_offsets.items()):
            table.add_row(each.flow, str(at), str(offset))
    console.show({"flows": [_export_json(each) for each in done]}, table)
    context.exit(1 if any(each.errors for each in done) else 0)


def _export_json(done: Mm2Export) -> dict[str, Any]:
    rows = [
        {"topic": at.topic, "partition": at.partition, "next_offset": offset}
        for at, offset in sorted(done.next_offsets.items())
    ]
    return {"flow": done.flow, "partitions": rows, "errors": _error_rows(done.errors)}


def _error_rows(errors: Sequence[DeltamirrorError]) -> list[dict[str, str]]:
    return [{"type": e.kind, "message": str(e), "hint": e.hint} for e in errors]


def _import_json(done: Mm2Import) -> dict[str, Any]:
    return {
        "flow": done.flow,
        "partitions": [_partition_json(each) for each in done.imported],
        "errors": _error_rows(done.errors),
    }


def _partition_json(imported: ImportedPartition) -> dict[str, Any]:
    found = imported.found
    return {
        "topic": imported.partition.topic,
        "partition": imported.partition.partition,
        "target_topic": imported.target.topic,
        "noted": imported.positions.copied,
        "next_offset": found.next_offset,
        "paired": sum(run.length for run in found.runs),
        "missing": found.missing,
        "complete_from": found.complete_from,
        "others": found.others,
        "doubtful_until": found.doubtful_until,
    }


def _import_table(done: Sequence[Mm2Import]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    table = Table(
        "flow", "partition", "continues at", "records paired", "not on the target", "notes"
    )
    for imported in done:
        for each in imported.imported:
            row = _partition_json(each)
            table.add_row(
                imported.flow,
                str(each.target),
                str(row["next_offset"]),
                f"{row['paired']:,}",
                f"{row['missing']:,}",
                "; ".join(_partition_notes(row)) or "-",
            )
    errors = [error for imported in done for error in imported.errors]
    return Group(table, *(f"{error}. {error.hint}" for error in errors))


def _partition_notes(row: dict[str, Any]) -> list[str]:
    notes = []
    if row["complete_from"] is not None:
        notes.append(f"the map is complete from upstream offset {row['complete_from']}")
    if row["others"]:
        notes.append(f"{row['others']:,} copies or aborted records on the target")
    if row["doubtful_until"] is not None:
        interval = f"[{row['next_offset']}, {row['doubtful_until']})"
        notes.append(
            f"records at {interval} may be on the target already; this cannot be determined, so "
            "they are sent again"
        )
    return notes
