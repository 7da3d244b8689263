"""`deltamirror status` and `deltamirror lag`: show state and lag of flows and partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import click
from rich.console import Group, RenderableType
from rich.table import Column, Table

from deltamirror.cli.app import Console, common_options
from deltamirror.cli.options import chosen_flows, flows_option, number_columns

if TYPE_CHECKING:
    from deltamirror.monitoring.lag import GroupLag
    from schemas.monitoring.flow_state import FlowState, PartitionState

STYLES = {"failed": "red", "unreachable": "red", "paused": "yellow"}


@click.command("status", epilog="Example: deltamirror status --flow 'us-east->eu-west'")
@flows_option
@common_options
@click.pass_obj
def status_command(console: Console, flow_names: tuple[str, ...]) -> None:
    """Show the state, lag and errors of each flow.

    Lag is in offsets. Age is the age of the oldest record that is not on the target yet.
    """
    from deltamirror.monitoring.flow_status import flow_status

    with console.open_context() as context:
        flows = chosen_flows(context.config, flow_names)
        states = [flow_status(context, flow) for flow in flows]
    console.show({"flows": [each.to_json() for each in states]}, lambda: _status_table(states))


@click.command("lag", epilog="Example: deltamirror lag --flow 'us-east->eu-west'")
@flows_option
@common_options
@click.pass_obj
def lag_command(console: Console, flow_names: tuple[str, ...]) -> None:
    """Show the lag of each partition and each group.

    SOURCE END, STAGED and REPLAYED are offsets of the source. Lag is in offsets. Age is the age of
    the oldest record that is not on the target yet. HELD BACK counts the offsets above the last
    stable offset, which belong to open transactions. Groups are shown as of their last snapshot.
    """
    from deltamirror.monitoring.flow_status import flow_status
    from deltamirror.monitoring.lag import group_lag

    with console.open_context() as context:
        flows = chosen_flows(context.config, flow_names)
        states = [flow_status(context, flow) for flow in flows]
        groups = [group_lag(context, *each) for each in zip(flows, states, strict=True)]
    data = [
        {**state.to_json(), "groups": [asdict(each) for each in found]}
        for state, found in zip(states, groups, strict=True)
    ]
    console.show({"flows": data}, lambda: _lag_tables(states, groups))


def _status_table(states: list[FlowState]) -> RenderableType:
    flows = Table("flow", "state", "lag", "age", "error")
    topics = Table("flow", "topic", "target topic", "partitions", "lag", "age", "error")
    for state in states:
        error = " ".join(text for text in (state.error, state.hint) if text)
        style = STYLES.get(state.state)
        flows.add_row(state.flow, state.state, f"{state.lag:,}", _age([state]), error, style=style)
        for topic, members in groupby(state.partitions, key=attrgetter("topic")):
            partitions = list(members)
            errors = [str(each.error) for each in partitions if each.error]
            paused = ["paused"] if any(each.is_paused for each in partitions) else []
            topics.add_row(
                state.flow,
                topic,
                partitions[0].target_topic,
                str(len(partitions)),
                f"{sum(each.lag for each in partitions):,}",
                _age(partitions),
                "; ".join(paused + errors),
                style="red" if errors else "yellow" if paused else None,
            )
    return Group(flows, topics) if topics.row_count else flows


def _lag_tables(states: list[FlowState], groups: list[list[GroupLag]]) -> RenderableType:
    column = _partition_column([each for state in states for each in state.partitions])
    numbers = number_columns("source end", "staged", "replayed", "lag", "age", "held back")
    partitions = Table("flow", column, "target topic", "state", *numbers)
    column = _partition_column([each for found in groups for each in found])
    consumers = Table("flow", "group", column, *number_columns("committed", "consumer lag"))
    for state, found in zip(states, groups, strict=True):
        for each in state.partitions:
            offsets = (each.source_end, each.staged, each.replayed, each.lag)
            partitions.add_row(
                state.flow,
                f"{each.topic}[{each.partition}]",
                each.target_topic,
                "failed" if each.error else "paused" if each.is_paused else state.state,
                *(f"{offset:,}" for offset in offsets),
                _age([each]),
                f"{each.held_back:,}",
                style="red" if each.error else None,
            )
        for lag in found:
            partition = f"{lag.topic}[{lag.partition}]"
            consumers.add_row(
                state.flow, lag.group, partition, f"{lag.committed:,}", f"{lag.lag:,}"
            )
    return Group(partitions, consumers) if consumers.row_count else partitions


def _partition_column(rows: Iterable[PartitionState | GroupLag]) -> Column:
    """Return a column for `topic[partition]` that a narrow terminal does not shorten."""
    widths = (len(f"{each.topic}[{each.partition}]") for each in rows)
    return Column("partition", no_wrap=True, min_width=max(widths, default=0))


def _age(states: Iterable[FlowState | PartitionState]) -> str:
    """Return the greatest age as text; `?` if records wait, but no age is known."""
    ages = [each.age_ms for each in states if each.lag]
    known = [age for age in ages if age is not None]
    if not known:
        return "?" if ages else "-"
    seconds = max(known) / 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"
