"""`deltamirror accept-gap`, `pause`, `resume`: write requests, which staging and replay apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import chosen_sources, flow_option
from schemas.errors.base import DeltamirrorError
from schemas.errors.source import TopicMissingError

if TYPE_CHECKING:
    from deltamirror.context import MirrorContext

topic_option = click.option("--topic", metavar="T", help="Only this source topic.")
partition_option = click.option(
    "--partition", type=click.IntRange(0), help="Only this partition of the topic."
)


@click.command(
    "accept-gap", epilog="Example: deltamirror accept-gap --cluster us-east --topic orders"
)
@click.option("--cluster", "alias", required=True, metavar="A", help="The source cluster.")
@click.option("--topic", required=True, metavar="T", help="The topic whose records are missing.")
@partition_option
@common_options
@click.pass_obj
def accept_gap_command(console: Console, alias: str, topic: str, partition: int | None) -> None:
    """Continue after records that the source no longer has.

    The missing offsets are recorded in `segments`, and `deltamirror gaps` shows them. One command
    accepts only the gaps that block staging when the request is applied, and only once.
    """
    from deltamirror.control import ACCEPT_GAP

    with console.open_context() as context:
        chosen_sources(context.config, alias)
        request = {"order": ACCEPT_GAP, "scope": alias, "topic": topic, "partition": partition}
        then = "records the missing offsets of {} in `segments` and continues after them"
        _add_request(console, context, request, alias, then)


@click.command(
    "pause", epilog="Example: deltamirror pause --flow 'us-east->eu-west' --topic orders"
)
@flow_option
@topic_option
@partition_option
@common_options
@click.pass_obj
def pause_command(
    console: Console, flow_name: str, topic: str | None, partition: int | None
) -> None:
    """Pause the replay of a flow, a topic or a partition.

    Staging continues, so no record is lost.
    """
    from deltamirror.control import PAUSE

    then = "does not replay {}; staging continues"
    _request_for_flow(console, PAUSE, flow_name, topic, partition, then)


@click.command(
    "resume", epilog="Example: deltamirror resume --flow 'us-east->eu-west' --topic orders"
)
@flow_option
@topic_option
@partition_option
@click.option(
    "--restart-topic",
    metavar="T",
    help="Replay this source topic from the beginning of the stage, because its target topic was "
    "re-created.",
)
@common_options
@click.pass_obj
def resume_command(
    console: Console,
    flow_name: str,
    topic: str | None,
    partition: int | None,
    restart_topic: str | None,
) -> None:
    """Resume a paused flow, and retry failed partitions.

    With --topic or --partition: only that topic or partition.
    """
    from deltamirror.control import RESTART, RESUME

    if restart_topic is None:
        order, then = RESUME, "replays {}, also after an error"
    elif topic is None:
        order, topic, then = RESTART, restart_topic, "replays {} from the beginning of the stage"
    else:
        raise click.UsageError("--restart-topic and --topic cannot be used together")
    _request_for_flow(console, order, flow_name, topic, partition, then)


def _request_for_flow(
    console: Console, order: str, name: str, topic: str | None, partition: int | None, then: str
) -> None:
    """Add the request *order* for a flow, or for a topic or a partition of it."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition requires --topic")
    with console.open_context() as context:
        flow = context.config.flow(name).flow
        request = {"order": order, "scope": flow.name, "topic": topic, "partition": partition}
        _add_request(console, context, request, flow.source, then)


def _add_request(
    console: Console, context: MirrorContext, request: dict[str, Any], source: str, then: str
) -> None:
    """Write *request* for topics of the cluster *source*, and print its effect *then*.

    `{}` in *then* is replaced by the name of the flow, cluster, topic or partition.
    """
    from deltamirror.control import ACCEPT_GAP, ControlTable

    subject = scope = request["scope"]
    if (topic := request["topic"]) is not None:
        partition = request["partition"]
        _check_topic_exists(context, source, topic, partition)
        subject = f"{topic if partition is None else f'{topic}[{partition}]'} of {scope}"
    loop = "stage" if request["order"] == ACCEPT_GAP else "replay"
    status = context.status_file.read(f"{loop} {scope}")
    context.lake.ensure_exists()
    ControlTable(context.lake.control).add_request(**request)
    is_running = status is not None and status["is_alive"] and status["state"] != "stopped"
    who = "The running loop" if is_running else "The next `deltamirror run`"
    data = {**request, "is_running": is_running}
    console.show(data, f"Noted. {who} {then.format(subject)}.")


def _check_topic_exists(
    context: MirrorContext, alias: str, topic: str, partition: int | None
) -> None:
    """Raise TopicMissingError if neither the stage nor the source has *topic*."""
    import pyarrow.compute as pc

    staged = context.lake.segments(alias).rows(["partition"], where=pc.field("topic") == topic)
    known = set(staged.column("partition").to_pylist())
    if known if partition is None else partition in known:
        return
    try:
        found = context.cluster(alias).topics([topic]).get(topic)
    except DeltamirrorError as error:
        # Only the source can confirm a topic that is not staged.
        raise TopicMissingError(topic, location=f"staged of {alias}, and {error}") from error
    if found is None:
        raise TopicMissingError(topic, location=f"on cluster {alias}, and none is staged")
    if partition is not None and partition >= found.partitions:
        raise TopicMissingError(f"{topic}[{partition}]", location=f"on cluster {alias}")
