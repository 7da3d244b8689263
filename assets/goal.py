"""Where the loops of a run that is to end may end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from assets.ledger import Ledger
from schemas.frontier import base_id
from schemas.progress import Progress
from schemas.topic_partition import TopicPartition


@dataclass
class Goal:
    """Topic ids and last stable offsets of a source, seen at a run's start."""

    ends: Mapping[TopicPartition, tuple[str, int]] = field(default_factory=dict)

    def is_staged(self, ledger: Ledger, but: Collection[TopicPartition]) -> bool:
        """Return whether everything up to the goal is in *ledger*, *but* for these.

        A life of a topic that another one has followed meanwhile is over.
        """
        return all(
            _is_staged(ledger, p, topic_id, end)
            for p, (topic_id, end) in self.ends.items()
            if end > 0 and p not in but
        )

    def is_replayed(
        self,
        progress: Callable[[TopicPartition], Progress | None],
        replicates: Callable[[str], bool],
    ) -> bool:
        """Return whether the *progress* of all that a flow *replicates* is past the goal.

        There may be more to replay: there are topics that never rest, heartbeats first of all.
        False where a topic was made anew meanwhile.
        """
        return all(
            _is_past(progress(p), topic_id, end)
            for p, (topic_id, end) in self.ends.items()
            if end > 0 and replicates(p.topic)
        )


def _is_staged(ledger: Ledger, partition: TopicPartition, topic_id: str, end: int) -> bool:
    known = ledger.chains.frontiers.get(partition)
    if known is None or base_id(known.source.topic_id) != topic_id:
        return topic_id in map(base_id, ledger.lives(partition))
    return known.next_offset >= end


def _is_past(progress: Progress | None, topic_id: str, end: int) -> bool:
    return (
        progress is not None
        and base_id(progress.incarnation) == topic_id
        and progress.next_offset >= end
    )
