"""`deltamirror run` tells a Dagster instance what it moved, where one is configured."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deltamirror.listener import Reporter, Silent
from schemas.config.flow import Flow
from schemas.errors import DeltamirrorError
from schemas.replay.slot_work import Move
from schemas.staging.segment import Segment

if TYPE_CHECKING:
    from assets.dagster_news import Teller

log = logging.getLogger(__name__)

CLOSE_S = 10.0
"""How long the end of a run waits for its last reports."""


class Both:
    """Two reporters as one."""

    def __init__(self, first: Reporter, second: Reporter) -> None:
        self._both = first, second

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Tell both that *segments* of source cluster *alias* were committed."""
        for each in self._both:
            each.staged(alias, segments)

    def replayed(self, flow: Flow, moves: Sequence[Move]) -> None:
        """Tell both that *moves* of *flow* were committed."""
        for each in self._both:
            each.replayed(flow, moves)

    def troubled(self, duty: str, error: DeltamirrorError) -> None:
        """Tell both that *duty*'s tick failed."""
        for each in self._both:
            each.troubled(duty, error)


def reporter_or_silent() -> Reporter:
    """Return a reporter to the instance of DAGSTER_HOME, or a silent one where that is not set.

    Dagster is imported only then. An instance that cannot be opened is logged, never raised.
    """
    if not os.environ.get("DAGSTER_HOME"):
        return Silent()
    try:
        return RunlessReporter()
    except Exception as error:  # Dagster's, SQLAlchemy's, the file system's: mirroring goes on
        log.warning("nothing is reported to Dagster: %s", _line(error))
        return Silent()


class RunlessReporter:
    """Reports from a thread of its own, so that a slow or broken Dagster slows no loop down."""

    def __init__(self) -> None:
        import dagster as dg

        from assets.dagster_news import News, Teller

        self._instance = dg.DagsterInstance.get()
        self._news = News()
        self._teller = Teller(self._news, self._instance, self._instance.report_runless_asset_event)
        self._stop = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="dagster reporter", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Count *segments* of source cluster *alias*."""
        self._news.staged(alias, segments)

    def replayed(self, flow: Flow, moves: Sequence[Move]) -> None:
        """Count *moves* of *flow*."""
        self._news.replayed(flow, moves)

    def troubled(self, duty: str, error: DeltamirrorError) -> None:
        """Say nothing: the loop logs it."""

    def close(self) -> None:
        """Report the rest; doing it twice is doing it once."""
        atexit.unregister(self.close)
        self._stop.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        from assets.dagster_news import TELL_EVERY_S

        while not self._stop.wait(TELL_EVERY_S):
            self._try(self._teller, is_last=False)
        self._try(self._teller, is_last=True)
        self._instance.dispose()

    def _try(self, teller: Teller, *, is_last: bool) -> None:
        """Report what is due; of failures in a row the first is logged."""
        try:
            tell = teller.finish if is_last else teller.turn
            tell(time.monotonic())
        except Exception as error:
            if not self._failed:
                log.warning("Dagster did not take a report: %s", _line(error))
            self._failed = True
        else:
            self._failed = False


def _line(error: BaseException) -> str:
    """Return the first line of an error's text, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
