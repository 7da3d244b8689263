"""`deltamirror maintain`: apply retention, compact and vacuum; rebuild a map; restage files."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.table import Table

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import chosen_sources, error_rows, with_errors


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
    if is_restaging:
        _restage(console, alias)
        return
    from deltamirror.maintenance.maintain import maintain

    with console.open_context() as context:
        chosen_sources(context.config, alias)
        done = maintain(context, alias)
    rows = [asdict(each) for each in done]
    table = Table(
        "cluster", "files past retention", "bytes", "files joined", "into", "other tables",
        "deleted from disk",
    )  # fmt: skip
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.show({"clusters": rows}, table)


def _restage(console: Console, chosen: str | None) -> None:
    from deltamirror.maintenance.restage import restage

    with console.open_context() as context:
        done = [restage(context, alias) for alias in chosen_sources(context.config, chosen)]
    errors = [error for each in done for error in each.lost]
    rows = [{name: value for name, value in vars(each).items() if name != "lost"} for each in done]
    table = Table("cluster", "files replaced", "ranges restored", "records", "from the source")
    for alias, *numbers in (row.values() for row in rows):
        table.add_row(alias, *(f"{number:,}" for number in numbers))
    data = {"clusters": rows, "errors": error_rows(errors)}
    console.show(data, with_errors(table, errors))
    if errors:
        click.get_current_context().exit(1)


def _rebuild_maps(console: Console, flow_name: str | None) -> None:
    from deltamirror.maintenance.rebuild_map import rebuild_map

    with console.open_context() as context:
        config = context.config
        flows = [config.flow(flow_name)] if flow_name else config.flows
        done = [rebuild_map(context, flow) for flow in flows]
    rebuilt = [each for rebuilding in done for each in rebuilding.rebuilt]
    errors = [error for rebuilding in done for error in rebuilding.errors]
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
    data = {"partitions": [asdict(each) for each in rebuilt], "errors": error_rows(errors)}
    console.show(data, with_errors(table, errors))
    if errors:
        click.get_current_context().exit(1)
