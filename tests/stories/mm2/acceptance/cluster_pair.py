"""Pair of mirrored clusters with the operations of Apache Kafka's tests."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JError

from deltamirror.run.supervisor import Mirror
from tests.support.brokers import (
    Record,
    commit_group,
    committed_offsets,
    consume_all,
    create_topic,
    produce,
)
from tests.support.mm2_java_classes import translate_offsets
from tests.support.world import Mesh, until

PARTITIONS, PER_PARTITION = 10, 10
RECORDS = PARTITIONS * PER_PARTITION
END_S = 60.0

VARIANTS = ("default", "identity", "transactions", "tls")


class ClusterPair:
    """Clusters `primary` and `backup`, mirrored as in Apache Kafka's tests, with unique names."""

    def __init__(self, home, clusters, variant):
        self.home, self.clusters, self.variant = home, clusters, variant
        self.mark = uuid.uuid4().hex[:8]
        self.group = f"consumer-group-{self.mark}"

    def topic(self, number):
        return f"test-topic-{self.mark}-{number}"

    def remote(self, number, source="primary"):
        topic = self.topic(number)
        return topic if self.variant == "identity" else f"{source}.{topic}"

    def mesh(self, *flows, **entries):
        """Return the file of *flows*; the default is one flow from the primary."""
        return Mesh(
            self.home,
            self.clusters,
            {
                **{f"{flow}.enabled": "true" for flow in flows or ("primary->backup",)},
                "topics": rf"(primary\.|backup\.)?test-topic-{self.mark}-.*",
                "groups": self.group,
                "config.properties.exclude": r"delete\.retention\..*",
                "emit.offset-syncs.enabled": "true",
                "emit.checkpoints.interval.seconds": "1",
                "sync.group.offsets.interval.seconds": "1",
                "sync.topic.configs.interval.seconds": "1",
                "emit.heartbeats.enabled": "true",
                "heartbeats.replication.enabled": "true",
                "heartbeats.topic.replication.factor": "1",
                **self._variant(),
                **entries,
            },
        )

    def _variant(self):
        match self.variant:
            case "identity":
                return {"replication.policy.class": "IdentityReplicationPolicy"}
            case "tls":
                by_tls = self.clusters["backup"].by_tls()
                return {f"backup.{key}": value for key, value in by_tls.items()}
        return {}

    def make(self, number, on="primary", partitions=PARTITIONS, **configs):
        create_topic(self.at(on), self.topic(number), partitions, **configs)

    def write(self, number, on="primary", partitions=PARTITIONS, first=0):
        """Write ten records to each of the first *partitions* partitions."""
        records = [
            Record(b"key", b"message-%d-%d" % (p, first + i), partition=p)
            for p in range(partitions)
            for i in range(PER_PARTITION)
        ]
        transaction = f"app-{uuid.uuid4().hex}" if self.variant == "transactions" else None
        produce(self.at(on), self.topic(number), records, transactional_id=transaction)

    def read(self, topic, on="backup"):
        """Return the records of *topic*; none if it does not exist."""
        try:
            return consume_all(self.at(on), topic)
        except KeyError:
            return []

    def has(self, number, records, source="primary", on="backup"):
        remote = self.remote(number, source)
        until(lambda: len(self.read(remote, on)) == records, f"{records} records of {remote}")

    def commit(self, number, offset_of, on="primary"):
        """Commit the offset of record number *offset_of(partition)* in each partition."""
        places = {}
        for message in consume_all(self.at(on), self.topic(number)):
            places.setdefault(message.partition(), []).append(message.offset())
        offsets = {
            (self.topic(number), p): [*found, found[-1] + 1][offset_of(p)]
            for p, found in places.items()
        }
        commit_group(self.at(on), self.group, offsets)

    def unread(self, number, offsets):
        """Return the number of records of the remote topic at or after *offsets*, by partition."""
        left = dict.fromkeys(range(PARTITIONS), 0)
        for message in self.read(self.remote(number)):
            left[message.partition()] += message.offset() >= offsets[message.partition()]
        return left

    def synced(self, number):
        """Return the group's translated offsets by partition of the remote topic."""
        found = committed_offsets(self.at("backup"), self.group)
        return {p: offset for (topic, p), offset in found.items() if topic == self.remote(number)}

    def translated(self, tools, number, on="backup", source="primary"):
        """Return the translation by MirrorMaker 2's own class, by partition of the remote topic."""
        try:
            found = translate_offsets(tools, self.at(on), source, self.group)
        except Py4JError:  # the checkpoints topic does not exist yet
            return {}
        remote = self.remote(number, source)
        return {p: offset for (topic, p), offset in found.items() if topic == remote}

    def at(self, alias):
        return self.clusters[alias].bootstrap_servers

    def topics(self, on):
        return set(self._admin(on).list_topics(timeout=10).topics)

    def forget_offset_syncs(self):
        """Delete the topics of offset syncs of other tests' runs."""
        for alias in self.clusters:
            left = {topic for topic in self.topics(alias) if "offset-syncs" in topic}
            admin = self._admin(alias)
            for deleted in (admin.delete_topics([*left]) if left else {}).values():
                deleted.result(END_S)
            until(lambda on=alias, gone=left: not self.topics(on) & gone, f"{left} are gone")

    def _admin(self, alias):
        return AdminClient({"bootstrap.servers": self.at(alias)})


@contextmanager
def running(mesh):
    """Run the flows of *mesh* for a block; raise the run's error after the block."""
    stop, failed = threading.Event(), []

    def run():
        try:
            Mirror(mesh.config, stop=stop).run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(END_S)
    assert not thread.is_alive()
    assert failed == []
