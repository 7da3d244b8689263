"""Write offset syncs for MirrorMaker 2's tools.

deltamirror does not read them while it mirrors: the offset map has every record's downstream
offset. With them MirrorMaker 2 can take over a flow, and its checkpoint task can run at the same
time.
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
from schemas.errors.base import DeltamirrorError
from schemas.kafka.partition import TopicPartition
from schemas.mm2.records import OffsetSync
from schemas.replay.slot_work import CommittedBatch

MAX_PENDING_SYNCS = 1_000
"""Offset syncs of a partition that are kept while the cluster is down. The newest are kept."""


class OffsetSyncs(Listener):
    """The offset syncs of a flow: recorded by its replay loop, written by another thread.

    So replay does not wait for the cluster that stores them, which is usually the source.
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
        """Queue a sample of the offset pairs of *moves*, if they are of this flow."""
        if flow != self._flow:
            return
        sampled = [(m.partition, sample_offset_syncs(m.runs, self._config.lag_max)) for m in moves]
        with self._lock:
            for at, pairs in sampled:
                syncs = (OffsetSync(at.topic, at.partition, *pair) for pair in pairs)
                self._pending.setdefault(at, []).extend(syncs)

    def write(self) -> int:
        """Write the queued syncs, in order by partition; return how many they were.

        The topic is created first, even if no sync is queued. Raises DeltamirrorError if the
        cluster is down or refuses; the syncs stay queued for the next call.
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
            with self._lock:
                for at, syncs in taken.items():
                    self._pending[at] = [*syncs, *self._pending.get(at, [])][-MAX_PENDING_SYNCS:]
            raise
        return len(records)
