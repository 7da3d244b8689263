"""`deltamirror translate`: translate an offset, or the commits of a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from rich.table import Table

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import as_of_option, flow_option, offset_text
from deltamirror.times import format_iso
from schemas.errors.base import NothingToTranslateError
from schemas.errors.environment import UnreachableError
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import Translation

if TYPE_CHECKING:
    from deltamirror.context import MirrorContext
    from pipeline.offset_map.index import MapIndex
    from schemas.config.config import FlowConfig


@click.command(
    "translate", epilog="Example: deltamirror translate --flow 'us-east->eu-west' --group billing"
)
@flow_option
@click.option("--topic", help="The source topic. With --reverse, the target topic is allowed too.")
@click.option("--partition", type=click.IntRange(0), help="The partition.")
@click.option(
    "--offset", type=click.IntRange(0), help="The committed offset: the next offset to read."
)
@click.option("--reverse", is_flag=True, help="Translate an offset of the target to the source.")
@click.option(
    "--incarnation", help="The topic id of an earlier incarnation.  [default: the newest]"
)
@click.option("--group", help="Translate the commits of this group.")
@as_of_option
@common_options
@click.pass_obj
def translate_command(
    console: Console,
    flow_name: str,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    reverse: bool,
    incarnation: str | None,
    group: str | None,
    as_of: int | None,
) -> None:
    """Translate offsets between source and target.

    Give --topic, --partition and --offset, or --group. The commits of a group are taken from its
    snapshots. The translation is exact.
    """
    single = (topic, partition, offset)
    if group is not None and single == (None, None, None) and not reverse and incarnation is None:
        _translate_group(console, flow_name, group, as_of)
        return
    if group is not None or as_of is not None or topic is None or partition is None:
        raise click.UsageError("Give --topic, --partition and --offset, or --group [--as-of].")
    if offset is None:
        raise click.UsageError("Give the --offset to translate.")
    from deltamirror.groups.checkpoints import map_index, translate_offset

    wanted = TopicPartition(topic, partition)
    with console.open_context() as context:
        flow_config = context.config.flow(flow_name)
        flow = flow_config.flow
        find = _translate_backward if reverse else translate_offset
        answer = find(map_index(context, flow_config), flow_config, wanted, offset, incarnation)
        if answer.downstream_offset is None:
            if not flow_config.replicates(topic):
                raise NothingToTranslateError(f"{flow} does not mirror {wanted}")
            if incarnation is None:
                _check_partition_exists(context, flow.source, wanted)
    console.show(answer.to_json(flow.name), lambda: _translation_table(flow.name, [("-", answer)]))


def _check_partition_exists(context: MirrorContext, alias: str, wanted: TopicPartition) -> None:
    """Raise NothingToTranslateError if the source responds and does not have the partition."""
    cluster = context.cluster(alias)
    try:
        cluster.probe()
        topic = cluster.topics([wanted.topic]).get(wanted.topic)
    except UnreachableError:
        return
    if topic is None:
        raise NothingToTranslateError(f"{alias} reports no topic {wanted.topic}")
    if wanted.partition >= topic.partitions:
        raise NothingToTranslateError(
            f"{alias} has no partition {wanted}: the topic's partition count is {topic.partitions}"
        )


def _translate_backward(
    offset_map: MapIndex,
    flow_config: FlowConfig,
    wanted: TopicPartition,
    offset: int,
    incarnation: str | None,
) -> Translation:
    from pipeline.offset_map.translate import translate_back

    source = offset_map.source_of(wanted) or wanted
    mapped = offset_map.mapped_incarnation(source, incarnation)
    back = translate_back(offset, mapped.runs) if mapped else None
    if mapped is None or back is None:
        raise NothingToTranslateError(f"{flow_config.flow}: nothing of {wanted} has arrived")
    return Translation(
        source.topic,
        mapped.incarnation,
        source.partition,
        back,
        mapped.target_topic,
        mapped.target_partition,
        offset,
    )


def _translate_group(console: Console, flow_name: str, group: str, as_of: int | None) -> None:
    from deltamirror.groups.checkpoints import translate_groups

    with console.open_context() as context:
        flow = context.config.flow(flow_name)
        found, _ = translate_groups(context, flow, as_of, group)
    seen_until = None if as_of is None else format_iso(as_of)
    if not found:
        when = f" at or before {seen_until}" if seen_until else ""
        raise NothingToTranslateError(
            f"no snapshot of group {group} has a commit{when}",
            hint="Take one with `deltamirror groups snapshot`; `run` takes them continuously.",
        )
    name = flow.flow.name
    rows = [each.at.to_json(name) for each in found]
    console.show(
        {"flow": name, "group": group, "as_of": seen_until, "partitions": rows},
        lambda: _translation_table(name, [(each.group, each.at) for each in found]),
    )


def _translation_table(flow: str, rows: Iterable[tuple[str, Translation]]) -> Table:
    table = Table("flow", "group", "partition", "committed", "on the target", "resumes at")
    for group, at in rows:
        table.add_row(
            flow,
            group,
            f"{at.topic}[{at.partition}]",
            str(at.upstream_offset),
            str(at.target),
            offset_text(at.downstream_offset),
        )
    return table
