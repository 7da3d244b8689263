"""Progress bars and totals of `deltamirror run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from threading import Lock
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from deltamirror.listener import Listener
from schemas.config.flow import Flow
from schemas.errors.base import DeltamirrorError
from schemas.monitoring.stats import ValueStats
from schemas.replay.slot_work import CommittedBatch
from schemas.staging.segment import Segment


class RunProgressListener(Listener):
    """Count records, with a bar in *bars* for each flow; *is_quiet*: the bars are not shown.

    A bar's total is the number of records staged for the flow's source since the run began.
    """

    def __init__(self, *, is_quiet: bool) -> None:
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("records"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=is_quiet,
        )
        self._lock = Lock()
        self._staged: Counter[str] = Counter()
        self._replayed: Counter[Flow] = Counter()
        self._errors = 0
        self._tasks: dict[Flow, Any] = {}

    def staged(
        self, alias: str, segments: Sequence[Segment], timestamps: Sequence[ValueStats] = ()
    ) -> None:
        with self._lock:
            self._staged[alias] += sum(segment.count for segment in segments)
            for flow in self._tasks:
                self._show(flow)

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        with self._lock:
            self._replayed[flow] += sum(move.records for move in moves)
            self._show(flow)

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        with self._lock:
            self._errors += 1

    def summary(self) -> dict[str, Any]:
        """Return the totals of the run."""
        return {
            "staged": self._staged.total(),
            "replayed": self._replayed.total(),
            "failed_ticks": self._errors,
            "flows": [{"flow": f.name, "replayed": n} for f, n in sorted(self._replayed.items())],
        }

    def _show(self, flow: Flow) -> None:
        if flow not in self._tasks:
            self._tasks[flow] = self.bars.add_task(flow.name)
        completed = self._replayed[flow]
        total = max(self._staged[flow.source], completed)
        self.bars.update(self._tasks[flow], completed=completed, total=total)
