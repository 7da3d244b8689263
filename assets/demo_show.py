"""What the demo shows: few lines, well set, each a fact that the next command can repeat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from confluent_kafka import Message
from rich import box
from rich.table import Table

from assets.demo_home import SOURCE, TARGET
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.flow_state import PartitionState


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a group is on one side and resumes on the other, and the next record of each."""

    upstream: TopicPartition
    committed: int
    resumes_at: int
    records: tuple[Message | None, Message | None]

    @property
    def is_same(self) -> bool:
        """Return whether both sides have the same record next: content, headers, time."""
        first, second = map(_content, self.records)
        return first is not None and first == second


def _content(message: Message | None) -> tuple[Any, ...] | None:
    if message is None:
        return None
    return message.key(), message.value(), message.headers(), message.timestamp()


def status_table(partitions: Iterable[PartitionState]) -> Table:
    """Return source end, staged, replayed and lag by topic, in offsets, summed over partitions."""
    table = _table("topic", "on the target")
    for heading in ("source end", "staged", "replayed", "lag"):
        table.add_column(heading, justify="right")
    by_topic: dict[str, list[PartitionState]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each)
    for topic, members in by_topic.items():
        numbers = [
            sum(each.source_end for each in members),
            sum(each.staged for each in members),
            sum(each.replayed for each in members),
            sum(each.lag for each in members),
        ]
        table.add_row(topic, members[0].target_topic, *(f"{number:,}" for number in numbers))
    return table


def resumption_table(resumptions: Sequence[Resumption]) -> Table:
    """Return, for each partition, both sides' next record, one under the other."""
    table = _table("partition", "cluster")
    table.add_column("next offset", justify="right")
    table.add_column("next record")
    table.add_column("")
    for each in resumptions:
        here, there = map(flight, each.records)
        verdict = "[green]same[/green]" if each.is_same else "[red]another[/red]"
        table.add_row(str(each.upstream), SOURCE, f"{each.committed:,}", here, "")
        table.add_row("", TARGET, f"{each.resumes_at:,}", there, verdict)
    return table


def answer_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return the answer of a query: texts to the left, numbers to the right."""
    found = [list(row) for row in rows]
    table = _table()
    for position, name in enumerate(columns):
        is_number = bool(found) and isinstance(found[0][position], int | float)
        table.add_column(name, justify="right" if is_number else "left")
    for row in found:
        table.add_row(
            *(f"{cell:,}" if isinstance(cell, int | float) else str(cell) for cell in row)
        )
    return table


def flight(message: Message | None) -> str:
    """Return a record of `flights` as a person says it; the time is the record's own, in UTC."""
    value = message.value() if message is not None else None
    if message is None or value is None:
        return "(no record)"
    row = json.loads(value)
    at = datetime.fromtimestamp(message.timestamp()[1] / 1000, timezone.utc)
    return f"{row['carrier']} {row['flight']} {row['origin']}→{row['dest']} {at:%Y-%m-%d %H:%M}"


def _table(*columns: str) -> Table:
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
