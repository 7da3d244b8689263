"""Ask MirrorMaker 2's own classes about keys: names, defaults, rejected values, precedence.

The classes are in the brokers' jars. The file has the clusters A and B and the flow A->B.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.java_gateway import JavaGateway, get_field
from py4j.protocol import Py4JJavaError

_RUNTIME = "org.apache.kafka.connect.runtime"
_MIRROR = "org.apache.kafka.connect.mirror"
_CLIENTS = "org.apache.kafka.clients"
CONNECTORS = ("MirrorSource", "MirrorCheckpoint", "MirrorHeartbeat")
DEFINITIONS = {
    "file": (f"{_MIRROR}.MirrorMakerConfig", "config"),
    "cluster": (f"{_MIRROR}.MirrorClientConfig", "CLIENT_CONFIG_DEF"),
    **{name: (f"{_MIRROR}.{name}Config", "CONNECTOR_CONFIG_DEF") for name in CONNECTORS},
    "source connector": (f"{_RUNTIME}.SourceConnectorConfig", "configDef"),
    "topic filter": (f"{_MIRROR}.DefaultTopicFilter$TopicFilterConfig", "DEF"),
    "group filter": (f"{_MIRROR}.DefaultGroupFilter$GroupFilterConfig", "DEF"),
    "property filter": (
        f"{_MIRROR}.DefaultConfigPropertyFilter$ConfigPropertyFilterConfig",
        "DEF",
    ),
    "worker": (f"{_RUNTIME}.distributed.DistributedConfig", "config"),
    "consumer": (f"{_CLIENTS}.consumer.ConsumerConfig", "CONFIG"),
    "producer": (f"{_CLIENTS}.producer.ProducerConfig", "CONFIG"),
    "admin": (f"{_CLIENTS}.admin.AdminClientConfig", "CONFIG"),
}
FILE = {
    "clusters": "A,B",
    "A.bootstrap.servers": "a:1",
    "B.bootstrap.servers": "b:1",
}
# Connect would look through every jar for plugins otherwise.
_QUICKLY = {"plugin.discovery": "service_load"}


class Mm2KeyReference:
    """MirrorMaker 2 in the JVM of *gateway*."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        self._mirror = getattr(gateway.jvm, _MIRROR)
        self._flow = self._mirror.SourceAndTarget("A", "B")

    def names(self, definition: str) -> frozenset[str]:
        """Return the names that a ConfigDef defines."""
        names = self._gateway.jvm.java.lang.String.join(",", self._definition(definition).names())
        return frozenset(names.split(","))

    def default(self, definition: str, name: str) -> str | None:
        """Return the default of *name* in a ConfigDef as in a file, or None if it has none."""
        described = self._definition(definition)
        kind = get_field(described.configKeys()[name], "type")
        values = described.defaultValues()
        return described.convertToString(values[name], kind) if name in values else None

    def free_names(self, definition: str, *but: str) -> list[str]:
        """Return the names of a ConfigDef, without those of *but*, whose value may be any text.

        MirrorMaker 2 itself reads the keys of the connection, and passes other keys on unchecked.
        """
        names = self.names(definition).difference(*map(self.names, but))
        keys = self._definition(definition).configKeys()
        return [name for name in sorted(names) if but or _takes_any_text(keys[name])]

    def filled_in(self) -> Mapping[str, str]:
        """Return a connector's configuration if the file has no keys of its flow."""
        return dict(self._connector({}))

    def runs(self, overrides: Mapping[str, str]) -> tuple[set[str], set[str]]:
        """Return the flows that replicate records, and those that emit heartbeats."""
        file, replicating, beating = self._file(overrides), set(), set()
        connector = self._mirror.MirrorHeartbeatConnector().getClass()
        for pair in file.clusterPairs():
            config = file.connectorBaseConfig(pair, connector)
            for key, default, found in (
                ("enabled", "false", replicating),
                ("emit.heartbeats.enabled", "true", beating),
            ):
                if config.getOrDefault(key, default) == "true":
                    found.add(pair.toString())
        return replicating, beating

    def bad_values(self, definition: str, values: Mapping[str, str]) -> set[str]:
        """Return the names of *values* whose value the ConfigDef rejects."""
        found = self._definition(definition).validateAll(self._map(values))
        return {name for name in values if not found[name].errorMessages().isEmpty()}

    def refusals(self, overrides: Mapping[str, str]) -> set[str]:
        """Return the keys, without prefixes, with which the file or a connector refuses to run.

        A key that the file refuses is "the file".
        """
        try:
            file = self._file(overrides)
        except Py4JJavaError:
            return {"the file"}
        found: set[str] = set()
        for name in CONNECTORS:
            connector = getattr(self._mirror, f"{name}Connector")()
            config = file.connectorBaseConfig(self._flow, connector.getClass())
            checked = connector.validate(config).configValues()
            found |= self._refused(connector.config(), checked)
        return found

    def consumer(self, overrides: Mapping[str, str]) -> Mapping[str, str]:
        """Return the properties of the consumer that reads A for A->B."""
        return dict(self._clients(overrides, "sourceConsumerConfig"))

    def source_admin(self, overrides: Mapping[str, str]) -> Mapping[str, str]:
        """Return the properties of A->B's admin client of A."""
        return dict(self._clients(overrides, "sourceAdminConfig"))

    def producer(self, overrides: Mapping[str, str]) -> Mapping[str, str]:
        """Return the properties of the producer that writes the records of A->B."""
        runtime, policies = (
            getattr(self._gateway.jvm, name)
            for name in (_RUNTIME, "org.apache.kafka.connect.connector.policy")
        )
        worker = self._file(overrides).workerConfig(self._flow)
        worker.putAll(self._map(_QUICKLY))
        connector = runtime.ConnectorConfig(
            runtime.isolation.Plugins(self._map(_QUICKLY)), self._connector(overrides)
        )
        answer = self._static(
            f"{_RUNTIME}.Worker",
            "baseProducerConfigs",
            *("MirrorSourceConnector", "a client id"),
            *(runtime.distributed.DistributedConfig(worker), connector),
            self._mirror.MirrorSourceConnector().getClass(),
            *(policies.AllConnectorClientConfigOverridePolicy(), "a cluster id"),
        )
        return dict(answer)

    def _file(self, overrides: Mapping[str, str]) -> Any:
        return self._mirror.MirrorMakerConfig(self._map({**FILE, **_QUICKLY, **overrides}))

    def _connector(self, overrides: Mapping[str, str]) -> Any:
        source = self._mirror.MirrorSourceConnector()
        return self._file(overrides).connectorBaseConfig(self._flow, source.getClass())

    def _definition(self, name: str) -> Any:
        where, member = DEFINITIONS[name]
        arguments = []
        if name == "worker":
            crypto = self._gateway.jvm.java.lang.Class.forName(f"{_RUNTIME}.distributed.Crypto")
            arguments = [crypto.getField("SYSTEM").get(None)]
        return self._static(where, member, *arguments)

    def _refused(self, definition: Any, checked: Any) -> set[str]:
        # The sum in one call: most often it is 0, and asking each value takes hundreds.
        answer = getattr(self._gateway.jvm, _RUNTIME).AbstractHerder.generateResult(
            "any", definition.configKeys(), checked, definition.groups()
        )
        if answer.errorCount() == 0:
            return set()
        return {value.name() for value in checked if not value.errorMessages().isEmpty()}

    def _static(self, where: str, member: str, *arguments: Any) -> Any:
        """Return a static field, or the result of a static method, also if it is not public."""
        owner = self._gateway.jvm.java.lang.Class.forName(where)
        fields = [field for field in owner.getDeclaredFields() if field.getName() == member]
        if fields:
            fields[0].setAccessible(True)
            return fields[0].get(None)
        return self._invoke(owner, None, member, *arguments)

    def _clients(self, overrides: Mapping[str, str], which: str) -> Any:
        """Return a client's properties: the result of MirrorConnectorConfig's method *which*."""
        config = self._mirror.MirrorSourceConfig(self._connector(overrides))
        no_role = None
        return self._invoke(config.getClass().getSuperclass(), config, which, no_role)

    def _invoke(self, owner: Any, object_: Any, name: str, *arguments: Any) -> Any:
        """Call the method *name* of the class *owner*; it is static where *object_* is None."""
        jvm = self._gateway.jvm
        (method,) = (
            each
            for each in owner.getDeclaredMethods()
            if (each.getName(), each.getParameterCount()) == (name, len(arguments))
            and jvm.java.lang.reflect.Modifier.isStatic(each.getModifiers()) == (object_ is None)
        )
        method.setAccessible(True)
        given = self._gateway.new_array(jvm.java.lang.Object, len(arguments))
        for i, argument in enumerate(arguments):
            given[i] = argument
        return method.invoke(object_, given)

    def _map(self, entries: Mapping[str, str]) -> Any:
        made = self._gateway.jvm.java.util.HashMap()
        for key, value in entries.items():
            made.put(key, value)
        return made


def _takes_any_text(key: Any) -> bool:
    kind, validator = get_field(key, "type"), get_field(key, "validator")
    return str(kind) in ("STRING", "PASSWORD") and validator is None
