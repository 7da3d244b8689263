"""One topic on the source or on the target, with results by partition."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from benchmarks.ground import PARTITIONS
from benchmarks.mm2.topics import Content, Topics, at
from demo.kafka.brokers import Broker

Offsets = Mapping[int, int]  # by partition
Record = tuple[bytes | None, bytes | None]  # key and value
_LOOK_BACK = 6
"""Number of offsets before a partition's end that include its last record; others are markers."""


class Topic:
    """Topic *name* on *broker* with *partitions* partitions, read with read_committed."""

    def __init__(self, broker: Broker, name: str, partitions: int = PARTITIONS) -> None:
        self.name, self.partitions = name, partitions
        self._all = Topics(broker, [name], partitions)

    def ends(self) -> dict[int, int]:
        """Return the last stable offset of each partition; 0 if the topic does not exist yet."""
        return {partition: end for (_, partition), end in self._all.ends().items()}

    def lasts(self, ends: Offsets) -> dict[int, Record | None]:
        """Return the last visible record below each of *ends*; None if only markers are there.

        One consumer reads all partitions. One for each partition would take 0.05 s each to connect,
        which would count as the rival's time.
        """
        found: dict[int, Record | None] = dict.fromkeys(ends)
        until = {(self.name, partition): end for partition, end in ends.items()}
        start = {
            topic_partition: max(0, end - _LOOK_BACK) for topic_partition, end in until.items()
        }
        for message in self._all.read(start, until) if ends else ():
            topic_partition, offset = at(message)
            if offset < until[topic_partition]:
                found[topic_partition[1]] = (message.key(), message.value())
        return found

    def key_at(self, partition: int, offset: int) -> bytes | None:
        """Return the key of the first visible record at or after *offset*, or None."""
        topic_partition = (self.name, partition)
        end = self.ends()[partition]
        with closing(self._all.read({topic_partition: offset}, {topic_partition: end})) as messages:
            return next((message.key() for message in messages), None)

    def contents(self, since: Offsets | None = None) -> dict[int, Content]:
        """Read all visible records, from *since* if given; return the content by partition."""
        start = {(self.name, partition): offset for partition, offset in (since or {}).items()}
        return {p: content for (_, p), content in self._all.contents(start or None).items()}

    def delete(self) -> None:
        """Delete the topic to free disk space."""
        self._all.delete()
