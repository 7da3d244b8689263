"""Is everything on the target that was staged, where the offset map says, once and in order?

    staged       10   11   14   15
    map           3    4    6    7        each must be at its place with equal content
    target        3    4    6    7    9   9: in no run; a copy of a staged record, or foreign

A record that is not at its place is looked for among those that nobody expects: found, it is out
of order; not found, it is lost, or altered where another content is at its place. How replay
worked plays no part in this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pipeline.arrays import NOTHING, Offsets, offsets_of
from pipeline.offset_map.runs import Fault, Runs, rising
from pipeline.pairing.pair import Fingerprint, fingerprints
from pipeline.verification.compare import Feed, Mask, match, walk
from schemas.kafka.partition import TopicPartition
from schemas.verification import (
    ALTERED,
    DUPLICATED,
    EXPIRED_DOWNSTREAM,
    FOREIGN,
    LOST,
    NEVER_COPIED,
    REORDERED,
    STAGED,
    TARGET,
    PartitionFindings,
)

BOTH = (STAGED, TARGET)

HELD = 50_000
"""Records looked for, and records that nobody expects, that are kept at a time."""

EXTRAS = 200_000
"""Unexpected records that are held against the whole stage; any more count as foreign."""


@dataclass(frozen=True)
class TargetView:
    """What was seen of a target partition: it is read in `[low, end)`.

    *is_compacted*: a record may have made way for a later one of its key. *topic_id* is the life
    of the topic that was seen. What lies before place *since* somebody else wrote.
    """

    partition: TopicPartition
    low: int
    end: int
    is_compacted: bool = False
    topic_id: str = ""
    since: int = 0


@dataclass(frozen=True)
class Life:
    """A staged incarnation: the *runs* of its map, in any order, and its share of progress.

    Records below *due* must have arrived, those below *reach* may have while we looked. Of those
    below *since* only what a run holds was ever sent.
    """

    incarnation: str
    runs: Runs
    due: int
    reach: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class _Sought:
    """A staged record that is not where it should be; *place* None: no run holds it.

    *number* rises in the order of staging.
    """

    number: int
    offset: int
    place: int | None
    is_due: bool
    fingerprint: Fingerprint


class TargetAudit:
    """One partition's staged records against what its target holds.

    *lives* are in the order of staging, the first of them the oldest. *met*: from this (number of
    the life, offset) on it is known that earlier records are on the target. `feed` staged rows in
    order, all or only those in doubt, and give the *target* records around their places; then
    `finish`; while there are `extras`, `explain` them with all staged rows, then `close`.
    """

    def __init__(
        self,
        found: PartitionFindings,
        lives: Sequence[Life],
        view: TargetView,
        target: Feed,
        met: tuple[int, int] | None = None,
    ) -> None:
        self._found, self._view, self._target = found, view, target
        self.records = 0
        self._lives = {life.incarnation: life for life in lives}
        self._order = list(self._lives)
        self._runs, faults = rising_runs(lives)
        for fault in faults:
            found.add(fault.kind, fault.offset, BOTH, fault.detail, fault.length)
        runs = self._runs.values()
        self._starts = np.concatenate([NOTHING, *(each.downstream for each in runs)])
        self._ends = self._starts + np.concatenate([NOTHING, *(each.length for each in runs)])
        self._met = met
        self._next: dict[str, int] = {}
        self._sought: list[_Sought] = []
        self._unclaimed: dict[int, Fingerprint] = {}
        self._numbers = 0
        self._first_met: float = float("inf")
        self._last = self._paired = -1
        self.extras: dict[Fingerprint, list[int]] = defaultdict(list)
        self._extra_count = 0

    def feed(self, incarnation: str, rows: pa.RecordBatch) -> None:
        """Take in staged *rows* of a life. Raises what reading the target raises."""
        life = self._lives.get(incarnation)
        if life is None:
            return
        runs, offsets = self._runs[incarnation], offsets_of(rows)
        again = int(np.searchsorted(offsets, self._next.get(incarnation, 0)))
        reach = int(np.searchsorted(offsets, max(life.reach, runs.upstream_end)))
        rows, offsets = rows.slice(again, max(0, reach - again)), offsets[again:reach]
        if not len(offsets):
            return
        if self._met is not None and self._met <= (self._order.index(incarnation), offsets[0]):
            self._first_met = min(self._first_met, self._numbers)
        self._next[incarnation] = int(offsets[-1]) + 1
        self.records += len(offsets)
        places, due = runs.places(offsets), offsets < life.due
        is_mapped = places >= 0
        if is_mapped.all():
            self._mapped(rows, places, due)
            return
        # Records that a run holds and others keep their order: cut where one turns into the other.
        edges = [0, *(np.flatnonzero(np.diff(is_mapped)) + 1).tolist(), len(offsets)]
        for start, stop in pairwise(edges):
            part = rows.slice(start, stop - start)
            if is_mapped[start]:
                self._mapped(part, places[start:stop], due[start:stop])
            else:
                never = int(np.searchsorted(offsets[start:stop], life.since))
                self._found.counts[NEVER_COPIED] += never
                self._unmapped(part.slice(never), due[start:stop][never:])

    def finish(self) -> None:
        """Take in what is left of the target, and give up looking."""
        for other in self._target.upto(self._view.end):
            self._unexpected(other)
        self._pair_up()
        self._trim(0)

    def explain(self, rows: pa.RecordBatch) -> None:
        """Find the extras that equal a staged record: those are duplicates of it."""
        for offset, mark in zip(offsets_of(rows).tolist(), fingerprints(rows), strict=True):
            for place in self.extras.pop(mark, ()):
                text = f"once more at {self._view.partition}@{place}"
                self._found.add(DUPLICATED, offset, BOTH, text)

    def close(self) -> None:
        """Count what equals nothing that was staged as another producer's."""
        self._found.counts[FOREIGN] += sum(map(len, self.extras.values()))
        self.extras.clear()

    def _mapped(self, rows: pa.RecordBatch, places: Offsets, due: Mask) -> None:
        """Compare records of the map's runs with what is at their places."""
        # Sent while we looked; but what was sent before and is past the end was cut off.
        visible = int(np.searchsorted(places, self._view.end))
        self._seek(rows.slice(visible), places[visible:], due[visible:], due[visible:])
        below = int(np.searchsorted(places[:visible], self._view.low))
        self._found.counts[EXPIRED_DOWNSTREAM] += below
        rows, places, due = rows.slice(below, visible - below), places[below:visible], due
        if not len(places):
            return
        for part, at, other in walk(rows, places, self._target):
            matched = match(part, at, other)
            everything = np.ones(len(at), np.bool_)
            if len(matched.missing) < len(at):
                self._first_met = min(self._first_met, self._numbers)
            for rows_of in (matched.missing, matched.altered[0]):
                chosen = np.zeros(len(at), np.bool_)
                chosen[rows_of] = True
                self._seek(part, at, everything, chosen)
            if other is not None and len(matched.extra) + len(matched.altered[1]):
                self._unexpected(other.take(pa.array(matched.extra)))
                self._unclaim(other.take(pa.array(matched.altered[1])))
        self._last = int(places[-1])
        if len(self._sought) > HELD or len(self._unclaimed) > HELD:
            self._pair_up()
            self._trim(HELD // 2)

    def _unmapped(self, rows: pa.RecordBatch, due: Mask) -> None:
        """Look for records that no run holds, among the target's before the next run."""
        self._seek(rows, None, due, np.ones(rows.num_rows, np.bool_))
        ahead = self._starts[self._starts > self._last]
        end = min(self._view.end, int(ahead[0])) if len(ahead) else self._view.end
        self._pair_up()
        while self._sought and len(self._unclaimed) < HELD:
            other = next(self._target.upto(end), None)
            if other is None:
                break
            self._unexpected(other)
            self._pair_up()
        self._trim(HELD // 2)

    def _seek(self, rows: pa.RecordBatch, places: Offsets | None, due: Mask, chosen: Mask) -> None:
        """Remember the *chosen* rows as looked for."""
        which = np.flatnonzero(chosen)
        if not len(which):
            return
        rows = rows.take(pa.array(which))
        marks = fingerprints(rows)
        for i, offset, mark in zip(which.tolist(), offsets_of(rows).tolist(), marks, strict=True):
            place = None if places is None else int(places[i])
            self._sought.append(_Sought(self._numbers, offset, place, bool(due[i]), mark))
            self._numbers += 1

    def _unexpected(self, other: pa.RecordBatch) -> None:
        """Remember records of the target that no staged record was compared with."""
        if len(self._starts):
            # What a run holds and the stage has lost is the stage's trouble, not the target's.
            offsets = offsets_of(other)
            run = np.searchsorted(self._starts, offsets, side="right") - 1
            outside = (run < 0) | (offsets >= self._ends[run])
            other = other.take(pa.array(np.flatnonzero(outside)))
        self._unclaim(other)

    def _unclaim(self, other: pa.RecordBatch) -> None:
        self._unclaimed.update(zip(offsets_of(other).tolist(), fingerprints(other), strict=True))

    def _pair_up(self) -> None:
        """Bring together what is looked for and what nobody expects."""
        places: dict[Fingerprint, list[int]] = defaultdict(list)
        for place in sorted(self._unclaimed):
            places[self._unclaimed[place]].append(place)
        left = []
        for each in self._sought:
            found = places.get(each.fingerprint)
            if not found:
                left.append(each)
                continue
            place = next((p for p in found if p > self._paired), found[0])
            found.remove(place)
            del self._unclaimed[place]
            self._first_met = min(self._first_met, each.number)
            if each.place is not None or place < self._paired:
                text = f"out of order: found at {self._view.partition}@{place}"
                self._found.add(REORDERED, each.offset, BOTH, text)
            else:
                self._paired = place
        self._sought = left

    def _trim(self, keep: int) -> None:
        """Give up on all but the newest *keep* of either kind."""
        given_up = self._sought[: max(0, len(self._sought) - keep)]
        self._sought = self._sought[len(given_up) :]
        for each in given_up:
            self._give_up(each)
        wanted = {each.place for each in self._sought}
        for place in sorted(self._unclaimed)[: max(0, len(self._unclaimed) - keep)]:
            if place not in wanted:
                self._set_aside(place, self._unclaimed.pop(place))

    def _give_up(self, each: _Sought) -> None:
        """Say what became of a record that is nowhere."""
        where = f"{self._view.partition}@{'?' if each.place is None else each.place}"
        if each.place is not None and self._unclaimed.pop(each.place, None) is not None:
            text = f"{where} has another content than the stage"
            self._found.add(ALTERED, each.offset, BOTH, text)
        elif not each.is_due:
            return
        elif self._view.is_compacted or (each.place is None and self._is_expired(each)):
            self._found.counts[EXPIRED_DOWNSTREAM] += 1
        else:
            text = f"not on the target, expected at {where}"
            self._found.add(LOST, each.offset, BOTH, text)

    def _is_expired(self, each: _Sought) -> bool:
        """Return whether the target's log may have begun behind a record that no run holds."""
        return each.number < self._first_met and self._view.low > 0

    def _set_aside(self, place: int, mark: Fingerprint) -> None:
        """Keep an unexpected record until the whole stage has been asked about it."""
        self._extra_count += 1
        if self._extra_count <= EXTRAS and place >= self._view.since:
            self.extras[mark].append(place)
        else:
            self._found.counts[FOREIGN] += 1


def rising_runs(lives: Sequence[Life]) -> tuple[dict[str, Runs], list[Fault]]:
    """Return the rising runs of each life, which lie one behind another, and the others' faults."""
    found: dict[str, Runs] = {}
    faults: list[Fault] = []
    end = 0
    for life in lives:
        found[life.incarnation], wrong = rising(life.runs, end)
        end = max(end, found[life.incarnation].downstream_end)
        faults += wrong
    return found, faults


def shares(
    order: Sequence[str], due: tuple[str, int] | None, reach: tuple[str, int] | None
) -> Mapping[str, tuple[int, int]]:
    """Return how far each incarnation of *order* must have, and may have, arrived.

    *due* and *reach* are progress (incarnation, next offset) before and after the target was
    looked at; None: it had not begun. Incarnations are replayed one after another.
    """
    return {name: (_share(order, name, due), _share(order, name, reach)) for name in order}


def _share(order: Sequence[str], name: str, progress: tuple[str, int] | None) -> int:
    if progress is None or progress[0] not in order:
        return 0
    at, here = order.index(progress[0]), order.index(name)
    return 2**62 if here < at else progress[1] if here == at else 0
