"""Progress bars of the demo: offsets staged and replayed as the loop reports them."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from schemas.config.flow import Flow
from schemas.errors import DeltamirrorError
from schemas.replay.slot_work import Move
from schemas.staging.segment import Segment


class Bars(Progress):
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
        self._telling = Lock()
        self._stage = self._bar("staged", to_stage)
        self._replay = self._bar("replayed", to_replay)

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Hear what a commit of *alias* staged."""
        with self._telling:
            self.records_staged += sum(each.count for each in segments)
            offsets = sum(each.end - each.start for each in segments)
            self.update(self._stage, advance=offsets, records=self.records_staged)

    def replayed(self, flow: Flow, moves: Sequence[Move]) -> None:
        """Hear what transactions of *flow* moved."""
        with self._telling:
            self.records_replayed += sum(each.records for each in moves if not each.rebuilt)
            self.records_paired += sum(each.records for each in moves if each.rebuilt)
            self.update(
                self._replay, advance=sum(map(_offsets, moves)), records=self.records_replayed
            )

    def troubled(self, duty: str, error: DeltamirrorError) -> None:
        """Hear that a tick of *duty* failed; it is tried again."""
        self.console.print(f"   {duty}: {error}", style="yellow", markup=False)

    def _bar(self, name: str, total: int) -> TaskID:
        # Nothing left to do is done; rich would show a total of 0 as 0 %.
        return self.add_task(name, total=max(1, total), completed=int(not total), records=0)


def _offsets(move: Move) -> int:
    began = move.before is not None and move.before.incarnation == move.after.incarnation
    return move.after.next_offset - (move.before.next_offset if began and move.before else 0)
