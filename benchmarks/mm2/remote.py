"""One topic on the source or on the target, by its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from benchmarks.ground import PARTITIONS
from benchmarks.mm2.topics import Content, Topics, at
from demo.kafka.brokers import Broker

Offsets = Mapping[int, int]  # by partition
Record = tuple[bytes | None, bytes | None]  # key and value
_LOOK_BACK = 6
"""Offsets before a partition's end among which its last record lies: the rest are markers."""


class Topic:
    """*name* on *broker*, with so many *partitions*, as read_committed sees it."""

    def __init__(self, broker: Broker, name: str, partitions: int = PARTITIONS) -> None:
        self.name, self.partitions = name, partitions
        self._all = Topics(broker, [name], partitions)

    def ends(self) -> dict[int, int]:
        """Return the last stable offset of each partition; 0 where the topic is not there yet."""
        return {partition: end for (_, partition), end in self._all.ends().items()}

    def lasts(self, ends: Offsets) -> dict[int, Record | None]:
        """Return the last visible record below each of *ends*; None: only markers lie there.

        One consumer reads them all: to connect one for each partition would take 0.05 s each, and
        count as time of the rival.
        """
        found: dict[int, Record | None] = dict.fromkeys(ends)
        until = {(self.name, partition): end for partition, end in ends.items()}
        start = {place: max(0, end - _LOOK_BACK) for place, end in until.items()}
        for message in self._all.read(start, until) if ends else ():
            place, offset = at(message)
            if offset < until[place]:
                found[place[1]] = (message.key(), message.value())
        return found

    def key_at(self, partition: int, offset: int) -> bytes | None:
        """Return the key of the first visible record at or behind *offset*; None: there is none."""
        place = (self.name, partition)
        end = self.ends()[partition]
        with closing(self._all.read({place: offset}, {place: end})) as messages:
            return next((message.key() for message in messages), None)

    def contents(self, since: Offsets | None = None) -> dict[int, Content]:
        """Read everything that is visible, *since* these offsets; return what each comes to."""
        start = {(self.name, partition): offset for partition, offset in (since or {}).items()}
        return {p: content for (_, p), content in self._all.contents(start or None).items()}

    def delete(self) -> None:
        """Delete it: what was measured is not needed any more, and disks are finite."""
        self._all.delete()
