"""Call MirrorMaker 2's own Java classes from a test, to read what its users read."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from demo.kafka.jars import kafka_home
from resources.java import java


@contextmanager
def mm2_tools() -> Iterator[JavaGateway]:
    """Start a JVM with MirrorMaker 2's jars; it ends with the block."""
    (py4j_jar,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(py4j_jar),
        classpath=f"{kafka_home()}/*",
        java_path=str(java()),
        javaopts=["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.java_process.wait(10) if gateway.java_process else None


Translated = Mapping[tuple[str, int], tuple[int, str]]
"""Offset and metadata by topic and partition."""


def translate_offsets(
    gateway: JavaGateway, bootstrap: str, remote_alias: str, group: str
) -> Mapping[tuple[str, int], int]:
    """Return the result of `RemoteClusterUtils.translateOffsets` by (topic, partition)."""
    answer = gateway.jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils.translateOffsets(
        _properties(gateway, bootstrap), remote_alias, group, _timeout(gateway)
    )
    return {at: offset for at, (offset, _) in _translated(answer).items()}


def translate_groups(
    gateway: JavaGateway, bootstrap: str, remote_alias: str, pattern: str
) -> Mapping[str, Translated]:
    """Return what it says of all groups that match the regular expression *pattern* (KIP-1239)."""
    answer = gateway.jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils.translateOffsets(
        _properties(gateway, bootstrap),
        remote_alias,
        _pattern(gateway, pattern),
        _timeout(gateway),
    )
    return {group: _translated(answer[group]) for group in answer}


class MirrorClient:
    """MirrorMaker 2's MirrorClient for the cluster at *bootstrap*."""

    def __init__(self, gateway: JavaGateway, bootstrap: str) -> None:
        self._gateway = gateway
        self._client = gateway.jvm.org.apache.kafka.connect.mirror.MirrorClient(
            _properties(gateway, bootstrap)
        )

    def names(self, question: str, *of: str) -> set[str]:
        """Return the answer to `heartbeatTopics`, `checkpointTopics`, `remoteTopics`, ..."""
        return set(getattr(self._client, question)(*of))

    def hops(self, upstream: str) -> int:
        """Return the result of `replicationHops`."""
        return int(self._client.replicationHops(upstream))

    def offsets(self, remote_alias: str, group: str) -> Translated:
        """Return the result of `remoteConsumerOffsets`."""
        timeout = _timeout(self._gateway)
        return _translated(self._client.remoteConsumerOffsets(group, remote_alias, timeout))

    def offsets_of_groups(self, remote_alias: str, pattern: str) -> Mapping[str, Translated]:
        """Return the offsets of all groups that match the regular expression *pattern*."""
        compiled = _pattern(self._gateway, pattern)
        timeout = _timeout(self._gateway)
        answer = self._client.remoteConsumerOffsets(compiled, remote_alias, timeout)
        return {group: _translated(answer[group]) for group in answer}

    def close(self) -> None:
        """Close its clients."""
        self._client.close()


class SyncStore:
    """The translation of MirrorMaker 2's checkpoint task, from the offset syncs of a flow.

    With *knows_former* the task has found checkpoints of an earlier run. Then it keeps more of the
    offset syncs that it reads first than the newest one of each partition.
    """

    def __init__(
        self,
        gateway: JavaGateway,
        source: tuple[str, str],
        target: tuple[str, str],
        *,
        knows_former: bool,
    ) -> None:
        self._gateway = gateway
        jvm = gateway.jvm
        settings = jvm.java.util.HashMap()
        for side, (alias, bootstrap) in (("source", source), ("target", target)):
            settings.put(f"{side}.cluster.alias", alias)
            settings.put(f"{side}.cluster.bootstrap.servers", bootstrap)
        settings.put("name", "reference")
        settings.put("connector.class", "org.apache.kafka.connect.mirror.MirrorCheckpointConnector")
        config = jvm.org.apache.kafka.connect.mirror.MirrorCheckpointConfig(settings)
        # Its constructor is package-private.
        store = jvm.java.lang.Class.forName("org.apache.kafka.connect.mirror.OffsetSyncStore")
        (constructor,) = (c for c in store.getDeclaredConstructors() if c.getParameterCount() == 1)
        constructor.setAccessible(True)
        arguments = gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = config
        self._store = constructor.newInstance(arguments)
        self._store.start(not knows_former)

    def translate(self, topic: str, partition: int, committed: int) -> int | None:
        """Return the offset at which a group at *committed* resumes, or None if unknown."""
        at = self._gateway.jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        answer = self._store.translateDownstream("any", at, committed)
        return int(answer.getAsLong()) if answer.isPresent() else None

    def close(self) -> None:
        """Close its clients."""
        self._store.close()


def _properties(gateway: JavaGateway, bootstrap: str) -> Any:
    properties = gateway.jvm.java.util.HashMap()
    properties.put("bootstrap.servers", bootstrap)
    return properties


def _pattern(gateway: JavaGateway, pattern: str) -> Any:
    return gateway.jvm.java.util.regex.Pattern.compile(pattern)


def _timeout(gateway: JavaGateway) -> Any:
    return gateway.jvm.java.time.Duration.ofSeconds(30)


def _translated(answer: Any) -> Translated:
    return {
        (at.topic(), at.partition()): (answer[at].offset(), answer[at].metadata()) for at in answer
    }
