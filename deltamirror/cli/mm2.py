"""`deltamirror import-mm2` and `export-mm2`: take over from MirrorMaker 2, and hand back to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import error_rows, with_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltamirror.mm2.import_flow import ImportedPartition


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
    from deltamirror.mm2.import_flow import import_mm2
    from resources.spark.session import SparkWorkers

    console: Console = context.obj
    with console.open_context() as mirror_context:
        config = mirror_context.config
        flows = [config.flow(flow_name)] if flow_name else config.flows
        workers = SparkWorkers(config.tasks_max)
        done = [import_mm2(mirror_context, flow, workers, is_dry_run=dry_run) for flow in flows]
    table = Table(
        "flow", "partition", "continues at", "records paired", "not on the target", "notes"
    )
    data = []
    for imported in done:
        rows = [_partition_json(each) for each in imported.imported]
        for row in rows:
            table.add_row(
                imported.flow,
                f"{row['target_topic']}[{row['partition']}]",
                str(row["next_offset"]),
                f"{row['paired']:,}",
                f"{row['missing']:,}",
                "; ".join(_partition_notes(row)) or "-",
            )
        row_errors = error_rows(imported.errors)
        data.append({"flow": imported.flow, "partitions": rows, "errors": row_errors})
    errors = [error for imported in done for error in imported.errors]
    console.show({"flows": data}, with_errors(table, errors))
    context.exit(1 if errors else 0)


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
    from deltamirror.mm2.export_flow import export_mm2

    console: Console = context.obj
    with console.open_context() as mirror_context:
        config = mirror_context.config
        flows = [config.flow(flow_name)] if flow_name else config.flows
        done = [export_mm2(mirror_context, flow) for flow in flows]
    table = Table("flow", "partition", "MirrorMaker 2 continues at")
    data = []
    for each in done:
        rows = []
        for at, offset in sorted(each.next_offsets.items()):
            table.add_row(each.flow, str(at), str(offset))
            rows.append({"topic": at.topic, "partition": at.partition, "next_offset": offset})
        data.append({"flow": each.flow, "partitions": rows, "errors": error_rows(each.errors)})
    console.show({"flows": data}, table)
    context.exit(1 if any(each.errors for each in done) else 0)


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


def _partition_notes(row: dict[str, Any]) -> Iterator[str]:
    if row["complete_from"] is not None:
        yield f"the map is complete from upstream offset {row['complete_from']}"
    if row["others"]:
        yield f"{row['others']:,} copies or aborted records on the target"
    if row["doubtful_until"] is not None:
        yield (
            f"records at [{row['next_offset']}, {row['doubtful_until']}) may be on the target "
            "already; this cannot be determined, so they are sent again"
        )
