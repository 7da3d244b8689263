"""Workers that do their jobs in this process, in the thread that asks: no Spark, one at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from resources.spark.session import Workers
from resources.spark.worker_pool import Answer, Crew, Job, Work


class Inline(Workers):
    """As `Workers`; what they have connected stays until `let_go`, also when a crew is closed."""

    def __init__(self, cores: int) -> None:
        super().__init__(cores)
        self._crews: list[_InlineCrew[Any, Any]] = []

    def crew(self, make: Callable[[], Work[Job, Answer]]) -> Crew[Job, Answer]:
        """Return workers for one duty; see `Workers.crew`."""
        crew = _InlineCrew(make)
        self._crews.append(crew)
        return crew

    def let_go(self) -> None:
        """End every worker, with its clients."""
        self._crews.clear()


class _InlineCrew(Crew[Job, Answer]):
    def __init__(self, make: Callable[[], Work[Job, Answer]]) -> None:
        self._new = make
        self._works: dict[int, Work[Job, Answer]] = {}

    def call(self, count: int) -> None:
        for number in range(count):
            self._works.setdefault(number, self._new())

    def gather(self) -> None:
        pass

    def run(self, jobs: Mapping[int, Job]) -> list[Answer]:
        self.call(max(jobs, default=-1) + 1)
        return [answer for number, job in jobs.items() for answer in self._works[number](job)]

    def close(self) -> None:
        pass


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Keep the collector from walking every record that is held, as in a worker of Spark."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
