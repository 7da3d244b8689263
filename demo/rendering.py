"""Progress bars of the demo: offsets staged and replayed as the loop reports them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from confluent_kafka import Message
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from deltamirror.listener import Listener
from demo.workspace import SOURCE, TARGET
from schemas.config.flow import Flow
from schemas.errors import DeltamirrorError
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.flow_state import PartitionState
from schemas.monitoring.stats import ValueStats
from schemas.replay.slot_work import CommittedBatch
from schemas.staging.segment import Segment


class DemoProgress(Progress, Listener):
    """A bar for staging and one for replay. The loop's threads tell; all of it is locked.

    Bars go by offsets, because a range may hold fewer records than offsets; beside them stand
    records. *to_stage* and *to_replay* are what is left, in offsets.
    """

    def __init__(self, console: Console, to_stage: int, to_replay: int) -> None:
        super().__init__(
            TextColumn("   {task.description:22}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[records]:>9,} records"),
            TimeElapsedColumn(),
            console=console,
        )
        self.records_staged = 0
        self.records_replayed = 0
        self.records_paired = 0
        self._bars_lock = Lock()
        self._stage = self._bar("staged", to_stage)
        self._replay = self._bar("replayed", to_replay)

    def staged(
        self, alias: str, segments: Sequence[Segment], timestamps: Sequence[ValueStats] = ()
    ) -> None:
        """Hear what a commit of *alias* staged."""
        with self._bars_lock:
            self.records_staged += sum(each.count for each in segments)
            offsets = sum(each.end - each.start for each in segments)
            self.update(self._stage, advance=offsets, records=self.records_staged)

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Hear what transactions of *flow* moved."""
        with self._bars_lock:
            self.records_replayed += sum(each.records for each in moves if not each.rebuilt)
            self.records_paired += sum(each.records for each in moves if each.rebuilt)
            self.update(
                self._replay, advance=sum(map(_offsets, moves)), records=self.records_replayed
            )

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        """Hear that a tick of *role* failed; it is tried again."""
        self.console.print(f"   {role}: {error}", style="yellow", markup=False)

    def _bar(self, name: str, total: int) -> TaskID:
        # Nothing left to do is done; rich would show a total of 0 as 0 %.
        return self.add_task(name, total=max(1, total), completed=int(not total), records=0)


def _offsets(move: CommittedBatch) -> int:
    began = move.before is not None and move.before.incarnation == move.after.incarnation
    return move.after.next_offset - (move.before.next_offset if began and move.before else 0)


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
    table = _plain_table("topic", "on the target")
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
    table = _plain_table("partition", "cluster")
    table.add_column("next offset", justify="right")
    table.add_column("next record")
    table.add_column("")
    for each in resumptions:
        here, there = map(describe_flight, each.records)
        verdict = "[green]same[/green]" if each.is_same else "[red]another[/red]"
        table.add_row(str(each.upstream), SOURCE, f"{each.committed:,}", here, "")
        table.add_row("", TARGET, f"{each.resumes_at:,}", there, verdict)
    return table


def answer_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return the answer of a query: texts to the left, numbers to the right."""
    found = [list(row) for row in rows]
    table = _plain_table()
    for position, name in enumerate(columns):
        is_number = bool(found) and isinstance(found[0][position], int | float)
        table.add_column(name, justify="right" if is_number else "left")
    for row in found:
        table.add_row(
            *(f"{cell:,}" if isinstance(cell, int | float) else str(cell) for cell in row)
        )
    return table


def describe_flight(message: Message | None) -> str:
    """Return a record of `flights` as a person says it; the time is the record's own, in UTC."""
    value = message.value() if message is not None else None
    if message is None or value is None:
        return "(no record)"
    row = json.loads(value)
    at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    return f"{row['carrier']} {row['flight']} {row['origin']}→{row['dest']} {at:%Y-%m-%d %H:%M}"


def _plain_table(*columns: str) -> Table:
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
