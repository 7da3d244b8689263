"""`deltamirror maintain`: apply retention, compact and vacuum; rebuild a map; restage files."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import check_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from deltamirror.maintenance.maintain import MaintenanceResult
    from deltamirror.maintenance.rebuild_map import RebuiltPartition
    from deltamirror.maintenance.restage import RestageResult
    from schemas.errors.base import DeltamirrorError


@click.command("maintain", epilog="Example: deltamirror maintain --cluster us-east")
@click.option("--cluster", "alias", metavar="A", help="Only the stage of this source cluster.")
@click.option(
    "--rebuild-map",
    is_flag=True,
    help="Only compare the offset map with the target, and write the missing runs.",
)
@click.option("--flow", "flow_name", metavar="A->B", help="With --rebuild-map: only this flow.")
@click.option(
    "--restage",
    "is_restaging",
    is_flag=True,
    help="Only read the whole stage, and restore missing, damaged or rewritten files.",
)
@common_options
@click.pass_obj
def maintain_command(
    console: Console,
    alias: str | None,
    rebuild_map: bool,
    flow_name: str | None,
    is_restaging: bool,
) -> None:
    """Apply retention, compact small files and vacuum.

    `deltamirror run` does this automatically. While it stages the cluster, this command fails.

    With --rebuild-map, pair the stage with the target of --flow, or of every flow, instead. With
    --restage, read the records that are missing in the stage's files from the source again,
    instead.
    """
    if rebuild_map and alias is None and not is_restaging:
        _rebuild_maps(console, flow_name)
        return
    if rebuild_map or flow_name:
        raise click.UsageError(
            "--rebuild-map can be combined with --flow only, and --flow with --rebuild-map only"
        )
    from deltamirror.context import MirrorContext
    from deltamirror.maintenance.maintain import maintain

    config = console.config()
    if alias is not None:
        check_source(config, alias)
    if is_restaging:
        _restage(console, [alias] if alias else config.sources())
        return
    with closing(MirrorContext(config)) as context:
        done = maintain(context, alias)
    console.show({"clusters": [asdict(each) for each in done]}, lambda: _maintain_table(done))


def _restage(console: Console, aliases: Sequence[str]) -> None:
    from deltamirror.context import MirrorContext
    from deltamirror.maintenance.restage import restage

    with closing(MirrorContext(console.config())) as context:
        done = [restage(context, alias) for alias in aliases]
    errors = [error for each in done for error in each.lost]
    clusters = [
        {name: value for name, value in vars(each).items() if name != "lost"} for each in done
    ]
    data = {"clusters": clusters, "errors": _error_rows(errors)}
    console.show(data, lambda: _restaged_table(done, errors))
    if errors:
        click.get_current_context().exit(1)


def _error_rows(errors: Sequence[DeltamirrorError]) -> list[dict[str, str]]:
    return [{"type": e.kind, "message": str(e), "hint": e.hint} for e in errors]


def _restaged_table(
    done: Sequence[RestageResult], errors: Sequence[DeltamirrorError]
) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    table = Table("cluster", "files replaced", "ranges restored", "records", "from the source")
    for each in done:
        numbers = (each.files, each.segments, each.records, each.from_source)
        table.add_row(each.alias, *(f"{number:,}" for number in numbers))
    return Group(table, *(f"{error}. {error.hint}" for error in errors))


def _rebuild_maps(console: Console, flow_name: str | None) -> None:
    from deltamirror.context import MirrorContext
    from deltamirror.maintenance.rebuild_map import rebuild_map

    config = console.config()
    flows = [config.flow(flow_name)] if flow_name else config.flows
    with closing(MirrorContext(config)) as context:
        done = [rebuild_map(context, flow) for flow in flows]
    rebuilt = [each for rebuilding in done for each in rebuilding.rebuilt]
    errors = [error for rebuilding in done for error in rebuilding.errors]
    data = {"partitions": [asdict(each) for each in rebuilt], "errors": _error_rows(errors)}
    console.show(data, lambda: _rebuilt_table(rebuilt, errors))
    if errors:
        click.get_current_context().exit(1)


def _rebuilt_table(
    rebuilt: Sequence[RebuiltPartition], errors: Sequence[DeltamirrorError]
) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    table = Table(
        "flow", "partition", "incarnation", "records on the target", "written", "complete"
    )
    for each in rebuilt:
        table.add_row(
            each.flow,
            f"{each.topic}[{each.partition}]",
            each.incarnation,
            f"{each.records:,}",
            f"{each.written_records:,} in {each.written_runs} runs",
            "from the beginning" if each.complete_from is None else f"from {each.complete_from}",
        )
    return Group(table, *(f"{error}. {error.hint}" for error in errors))


def _maintain_table(done: Sequence[MaintenanceResult]) -> Table:
    from rich.table import Table

    table = Table(
        "cluster", "files past retention", "bytes", "files joined", "into", "other tables",
        "deleted from disk",
    )  # fmt: skip
    for each in done:
        numbers = (
            each.removed, each.removed_bytes, each.joined, each.joined_into, each.merged,
            each.deleted,
        )  # fmt: skip
        table.add_row(each.alias, *map(str, numbers))
    return table
