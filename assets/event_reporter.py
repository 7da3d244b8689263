"""What the loops moved, told to Dagster topic by topic and not too often.

An event costs Dagster's SQLite some 9 kB for ever: one event a second at most, one a topic in
30 s. In between the numbers add up.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from assets.keys import map_key, records_key, topics_of
from schemas.config.flow import Flow
from schemas.errors import DeltamirrorError
from schemas.replay.slot_work import Move
from schemas.staging.segment import Segment

TOPIC_EVERY_S = 30.0
"""How often a topic of an asset is told at most."""

TELL_EVERY_S = 1.0
"""How often anything is told at most."""


@dataclass(slots=True)
class Tally:
    """What moved of a topic since it was last told, in records, bytes and offsets."""

    owner: str
    records: int = 0
    size_bytes: int = 0
    gaps: int = 0
    runs: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    told_at: float = float("-inf")
    has_news: bool = False

    def reach(self, first: int | None, last: int | None) -> None:
        """Take in that records from offset *first* to *last* moved; None: no records."""
        if first is not None and last is not None:
            self.first_offset = (
                first if self.first_offset is None else min(first, self.first_offset)
            )
            self.last_offset = last if self.last_offset is None else max(last, self.last_offset)


class News:
    """A reporter that gathers what moved until somebody asks for the next event.

    *row_counts* are the records that each topic of each asset had at the start; without them
    events say only what moved.
    """

    def __init__(self, row_counts: Mapping[tuple[dg.AssetKey, str], int] | None = None) -> None:
        self._lock = threading.Lock()
        self._tallies: dict[tuple[dg.AssetKey, str], Tally] = {}
        self._row_counts = None if row_counts is None else dict(row_counts)

    def staged(self, alias: str, segments: Sequence[Segment]) -> None:
        """Count *segments* of source cluster *alias*."""
        with self._lock:
            for segment in segments:
                tally = self._count(records_key(alias), alias, segment.topic, segment.count)
                tally.size_bytes += segment.size_bytes
                tally.gaps += segment.gaps
                tally.reach(segment.first, segment.last)

    def replayed(self, flow: Flow, moves: Sequence[Move]) -> None:
        """Count *moves* of *flow*."""
        with self._lock:
            for move in moves:
                topic = move.partition.topic
                tally = self._count(map_key(flow), flow.key, topic, move.records)
                tally.runs += len(move.runs)
                for run in move.runs:
                    tally.reach(run.downstream_start, run.downstream_end - 1)

    def troubled(self, duty: str, error: DeltamirrorError) -> None:
        """Say nothing: the loop logs it, and `status` and the asset `lag` show it."""

    def _count(self, key: dg.AssetKey, owner: str, topic: str, records: int) -> Tally:
        tally = self._tallies.setdefault((key, topic), Tally(owner))
        tally.records += records
        tally.has_news = True
        if self._row_counts is not None:
            known = self._row_counts.get((key, topic), 0)
            self._row_counts[key, topic] = known + records
        return tally

    def next_event(self, now: float, *, is_last: bool = False) -> Event | None:
        """Return the event that has waited longest; None: none is due at *now* (s, monotonic).

        With *is_last* whatever was not told yet is due.
        """
        with self._lock:
            due = [
                (tally.told_at, place)
                for place, tally in self._tallies.items()
                if tally.has_news and (is_last or now - tally.told_at >= TOPIC_EVERY_S)
            ]
            if not due:
                return None
            _, (key, topic) = min(due, key=lambda each: each[0])
            tally = self._tallies[key, topic]
            self._tallies[key, topic] = Tally(tally.owner, told_at=now)
            row_count = (self._row_counts or {}).get((key, topic))
        return Event(key, tally.owner, topic, _metadata(tally, row_count))


@dataclass(frozen=True, slots=True)
class Event:
    """That *topic* of the asset *key* moved; *owner* is the cluster or flow it belongs to."""

    key: dg.AssetKey
    owner: str
    topic: str
    metadata: Mapping[str, int]

    def materialization(self) -> dg.AssetMaterialization:
        """Return the event as Dagster keeps it."""
        return dg.AssetMaterialization(self.key, partition=self.topic, metadata=self.metadata)


class Teller:
    """Tells *news* to a Dagster *instance* by *tell*, and adds the topics that it does not know."""

    def __init__(
        self,
        news: News,
        instance: dg.DagsterInstance,
        tell: Callable[[dg.AssetMaterialization], None],
    ) -> None:
        self._news, self._instance, self._tell = news, instance, tell
        self._known: set[tuple[str, str]] = set()

    def turn(self, now: float) -> None:
        """Tell one event, if one is due."""
        self._say(self._news.next_event(now))

    def finish(self, now: float) -> None:
        """Tell all that was not told yet."""
        while (event := self._news.next_event(now, is_last=True)) is not None:
            self._say(event)

    def _say(self, event: Event | None) -> None:
        if event is None:
            return
        if (event.owner, event.topic) not in self._known:
            name = topics_of(event.owner).name
            self._instance.add_dynamic_partitions(str(name), [event.topic])
            self._known.add((event.owner, event.topic))
        self._tell(event.materialization())


def _metadata(tally: Tally, row_count: int | None) -> dict[str, int]:
    found = {
        "records": tally.records,
        "size_bytes": tally.size_bytes or None,
        "gaps": tally.gaps,
        "runs": tally.runs or None,
        "first_offset": tally.first_offset,
        "last_offset": tally.last_offset,
        "dagster/row_count": row_count,
    }
    return {name: value for name, value in found.items() if value is not None}


log = logging.getLogger(__name__)

CLOSE_S = 10.0
"""How long the end of a run waits for its last reports."""


class RunlessReporter:
    """Reports from a thread of its own, so that a slow or broken Dagster slows no loop down."""

    def __init__(self) -> None:
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
