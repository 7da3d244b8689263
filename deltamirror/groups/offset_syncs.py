"""Offset syncs for MirrorMaker 2's own tools: where some records are on the target.

Nothing of ours reads them: the offset map holds every record's place. With them MirrorMaker 2 can
take a flow over, and its checkpoint task can work beside ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from deltamirror.context import MirrorContext
from deltamirror.listener import Listener
from pipeline.offset_map.offset_syncs import sample_offset_syncs
from resources.kafka.compacted_topic import CompactedTopic
from schemas.config.config import OffsetSyncsConfig
from schemas.config.flow import Flow
from schemas.errors import DeltamirrorError
from schemas.kafka.partition import TopicPartition
from schemas.mm2.records import OffsetSync
from schemas.replay.slot_work import CommittedBatch

MAX_PENDING_SYNCS = 1_000
"""Syncs of a partition that wait for a cluster that is down; of more, the newest count."""


class OffsetSyncs(Listener):
    """The offset syncs of a flow: noted by its replay loop, written by another thread.

    So the cluster that takes them, mostly the source, holds up no replay.
    """

    def __init__(self, context: MirrorContext, flow: Flow, config: OffsetSyncsConfig) -> None:
        self._flow, self._config = flow, config
        self._topic = CompactedTopic(
            context.cluster(config.cluster),
            config.topic,
            context.config.clusters[config.cluster].producer,
        )
        self._is_created = False
        self._lock = Lock()
        self._pending: dict[TopicPartition, list[OffsetSync]] = {}

    def replayed(self, flow: Flow, moves: Sequence[CommittedBatch]) -> None:
        """Keep a sample of *moves*, if they are of this flow, until it is written."""
        if flow != self._flow:
            return
        found: dict[TopicPartition, list[OffsetSync]] = {}
        for move in moves:
            at = move.partition
            found.setdefault(at, []).extend(
                OffsetSync(at.topic, at.partition, *pair)
                for pair in sample_offset_syncs(move.runs, self._config.lag_max)
            )
        with self._lock:
            for at, syncs in found.items():
                self._pending[at] = [*self._pending.get(at, []), *syncs]

    def write(self) -> int:
        """Write what is waiting, in order by partition; return how much it was.

        The topic is made first, whether anything waits or not. Raises DeltamirrorError where the
        cluster is down or says no; then it is written the next time.
        """
        with self._lock:
            taken, self._pending = self._pending, {}
        records = [(sync.key, sync.value) for syncs in taken.values() for sync in syncs]
        try:
            if not self._is_created:
                self._topic.ensure_exists(self._config.replication_factor)
                self._is_created = True
            if records:
                self._topic.write(records)
        except DeltamirrorError:
            self._is_created = False
            self._requeue(taken)
            raise
        return len(records)

    def _requeue(self, taken: dict[TopicPartition, list[OffsetSync]]) -> None:
        with self._lock:
            for at, syncs in taken.items():
                self._pending[at] = [*syncs, *self._pending.get(at, [])][-MAX_PENDING_SYNCS:]
