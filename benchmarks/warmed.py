"""Workers that have begun before anything is measured."""

from __future__ import annotations

from collections.abc import Callable

from resources.spark.session import Workers
from resources.spark.worker_pool import Answer, Crew, Job, Work


class Warmed(Workers):
    """As `Workers`; a crew is returned when all of it is there."""

    def crew(self, make: Callable[[], Work[Job, Answer]]) -> Crew[Job, Answer]:
        """Return workers for one duty; see `Workers.crew`."""
        crew = super().crew(make)
        crew.call(self.cores)
        crew.gather()
        return crew
