"""Heartbeats of pairs of clusters, in MirrorMaker 2's format.

The pair A->B writes to `heartbeats` on B, also if it does not replicate. `heartbeats` is replicated
like any other topic: heartbeats that B->A writes on A arrive on B as `A.heartbeats`, and show that
A->B replicates.
"""

from __future__ import annotations

import time

from deltamirror.context import MirrorContext
from resources.kafka.compacted_topic import CompactedTopic
from schemas.config.config import HeartbeatConfig
from schemas.errors.base import DeltamirrorError
from schemas.mm2.records import Heartbeat


class HeartbeatEmitter:
    """Emitter of one pair, for use by one thread. Creates the topic before the first heartbeat."""

    def __init__(self, context: MirrorContext, config: HeartbeatConfig) -> None:
        target = config.flow.target
        self._config = config
        self._topic = CompactedTopic(
            context.cluster(target), config.topic, context.config.clusters[target].producer
        )
        self._is_created = False

    def emit(self) -> Heartbeat:
        """Write a heartbeat with the current time; return it after the target acknowledged it.

        Raises DeltamirrorError if the target is down or refuses the write.
        """
        flow = self._config.flow
        heartbeat = Heartbeat(flow.source, flow.target, int(time.time() * 1000))
        try:
            if not self._is_created:
                self._topic.ensure_exists(self._config.replication_factor)
                self._is_created = True
            self._topic.write([(heartbeat.key, heartbeat.value)])
        except DeltamirrorError:
            self._is_created = False  # the topic may have been deleted
            raise
        return heartbeat
