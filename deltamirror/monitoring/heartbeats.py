"""Signs of life of pairs of clusters, as MirrorMaker 2 writes them: to see a flow move by them.

The pair A->B writes to `heartbeats` on B, whether it replicates or not. That topic is replicated
like any other: what B->A writes on A arrives on B as `A.heartbeats`, and shows that A->B moves.
"""

from __future__ import annotations

import time

from deltamirror.context import MirrorContext
from resources.kafka.compacted_topic import CompactedTopic
from schemas.config.config import HeartbeatConfig
from schemas.errors import DeltamirrorError
from schemas.mm2.records import Heartbeat


class HeartbeatEmitter:
    """The heart of one pair, which beats from one thread; its topic is made at the first beat."""

    def __init__(self, context: MirrorContext, config: HeartbeatConfig) -> None:
        target = config.flow.target
        self._config = config
        self._topic = CompactedTopic(
            context.cluster(target), config.topic, context.config.clusters[target].producer
        )
        self._is_created = False

    def emit(self) -> Heartbeat:
        """Write a heartbeat of now, and return it once the target has it.

        Raises DeltamirrorError where the target is down or says no.
        """
        flow = self._config.flow
        heartbeat = Heartbeat(flow.source, flow.target, int(time.time() * 1000))
        try:
            if not self._is_created:
                self._topic.ensure_exists(self._config.replication_factor)
                self._is_created = True
            self._topic.write([(heartbeat.key, heartbeat.value)])
        except DeltamirrorError:
            self._is_created = False  # it may have been deleted
            raise
        return heartbeat
