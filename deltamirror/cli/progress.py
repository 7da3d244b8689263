"""Progress bars and totals of `deltamirror run`."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from types import TracebackType
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
    """Count records and, on a terminal, show a bar for each flow.

    A bar's total is the number of records staged for the flow's source since the run began.
    """

    def __init__(self, *, is_quiet: bool) -> None:
        self._lock = Lock()
        self._staged: dict[str, int] = {}
        self._replayed: dict[Flow, int] = {}
        self._errors = 0
        self._bars = None if is_quiet else _bars()
        self._tasks: dict[Flow, Any] = {}

    def __enter__(self) -> RunProgressListener:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def staged(
        self, alias: str, segments: Sequence[Segment], timestamps: Sequence[ValueStats] = ()
    ) -> None:
        """Count the records of *segments*."""
        with self._lock:
            self._staged[alias] = self._staged.get(alias, 0) + sum(s.count for s in segments)
            for flow in self._tasks:
                self._show(flow)

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Count the records of *moves*."""
        with self._lock:
            self._replayed[flow] = self._replayed.get(flow, 0) + sum(m.records for m in moves)
            self._show(flow)

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        """Count a failed tick. The loop logs the error."""
        with self._lock:
            self._errors += 1

    def summary(self) -> dict[str, Any]:
        """Return the totals of the run."""
        return {
            "staged": sum(self._staged.values()),
            "replayed": sum(self._replayed.values()),
            "failed_ticks": self._errors,
            "flows": [{"flow": f.name, "replayed": n} for f, n in sorted(self._replayed.items())],
        }

    def _show(self, flow: Flow) -> None:
        if self._bars is None:
            return
        if flow not in self._tasks:
            self._tasks[flow] = self._bars.add_task(flow.name)
        total = max(self._staged.get(flow.source, 0), self._replayed.get(flow, 0))
        self._bars.update(self._tasks[flow], completed=self._replayed.get(flow, 0), total=total)


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
