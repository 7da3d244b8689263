"""Java client properties: their names in librdkafka, or the reason why they have no effect.

Measured against librdkafka 2.16. A Java property that is in no table here is an unknown key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.config.keys import BITS, Kind, keys_by_name, parse_boolean, parse_integer

ROLES = ("consumer", "producer", "admin")
ALL, CONSUMER, PRODUCER, ADMIN = "CPA", "C", "P", "A"


@dataclass(frozen=True)
class ClientKey:
    """A Java client property.

    *clients* holds C, P, A for consumer, producer, admin. *librdkafka* is its name in librdkafka;
    if it is empty, *note* says why the property has no effect. *minimum* and *maximum* are Java's
    bounds of a number. Java refuses a value that the regular expression *allowed* does not match.
    """

    name: str
    clients: str
    librdkafka: str
    kind: Kind = Kind.INTEGER
    note: str = ""
    minimum: int | None = 0
    maximum: int | None = None
    allowed: str | None = None

    def read(self, value: str) -> str | int | bool:
        """Parse *value*. Raises ValueError if Java refuses it."""
        if self.allowed is not None and not re.fullmatch(self.allowed, value):
            words = self.allowed.removeprefix("(?i)").replace("|", " or ")
            raise ValueError(f"it must be {words}")
        if self.kind is Kind.BOOLEAN:
            return parse_boolean(value)
        if self.kind is Kind.STRING:
            return value
        number = parse_integer(value, self.minimum, BITS[self.kind])
        if self.maximum is not None and number > self.maximum:
            raise ValueError(f"it must be at most {self.maximum}")
        return number


_S, _B, _I, _LONG = Kind.STRING, Kind.BOOLEAN, Kind.INTEGER, Kind.LONG
_SAME = (
    ("client.id", ALL, _S), ("enable.metrics.push", ALL, _B),
    ("reconnect.backoff.ms", ALL, _LONG), ("reconnect.backoff.max.ms", ALL, _LONG),
    ("retry.backoff.ms", ALL, _LONG), ("retry.backoff.max.ms", ALL, _LONG),
    ("metadata.recovery.rebootstrap.trigger.ms", ALL, _LONG),
    ("client.rack", CONSUMER, _S), ("fetch.min.bytes", CONSUMER, _I),
    ("fetch.max.bytes", CONSUMER, _I), ("max.partition.fetch.bytes", CONSUMER, _I),
    ("check.crcs", CONSUMER, _B), ("batch.size", PRODUCER, _I), ("linger.ms", PRODUCER, _LONG),
)  # fmt: skip
_RENAMED = (
    ("metadata.max.age.ms", ALL, "topic.metadata.refresh.interval.ms", _LONG),
    ("request.timeout.ms", ALL, "socket.timeout.ms", _I),
    ("fetch.max.wait.ms", CONSUMER, "fetch.wait.max.ms", _I),
    ("buffer.memory", PRODUCER, "queue.buffering.max.kbytes", _LONG),
    ("max.request.size", PRODUCER, "message.max.bytes", _I),
)
_IDLE, _SETUP = "connections.max.idle.ms", "socket.connection.setup.timeout.ms"
_LOOKUP, _RECOVERY = "client.dns.lookup", "metadata.recovery.strategy"
_FLIGHT, _TRANSACTION = "max.in.flight.requests.per.connection", "transaction.timeout.ms"
_BOUNDED = (
    ClientKey(_IDLE, ALL, _IDLE, _LONG, minimum=None),
    ClientKey(_SETUP, ALL, _SETUP, _LONG, minimum=None),
    ClientKey(_LOOKUP, ALL, _LOOKUP, _S,
              allowed="use_all_dns_ips|resolve_canonical_bootstrap_servers_only"),
    ClientKey(_RECOVERY, ALL, _RECOVERY, _S, allowed="(?i)rebootstrap|none"),
    ClientKey("send.buffer.bytes", ALL, "socket.send.buffer.bytes", minimum=-1),
    ClientKey("receive.buffer.bytes", ALL, "socket.receive.buffer.bytes", minimum=-1),
    ClientKey(_FLIGHT, PRODUCER, _FLIGHT, minimum=1),
    ClientKey(_TRANSACTION, PRODUCER, _TRANSACTION, minimum=None),
    ClientKey("compression.type", PRODUCER, "compression.type", _S,
              allowed="none|gzip|snappy|lz4|zstd"),
    ClientKey("compression.gzip.level", PRODUCER, "compression.level", allowed="-1|[1-9]",
              minimum=None),
    ClientKey("compression.lz4.level", PRODUCER, "compression.level", minimum=1, maximum=17),
    ClientKey("compression.zstd.level", PRODUCER, "compression.level", minimum=-131072, maximum=22),
)  # fmt: skip
# The ranges of librdkafka 2.16 (its CONFIGURATION.md). A Java number outside is set to the bound.
_MAX_INT, _HOUR, _FIVE_MINUTES = 2**31 - 1, 3_600_000, 300_000
LIBRDKAFKA_BOUNDS = {
    "batch.size": (1, _MAX_INT),
    "compression.level": (-1, 12),
    "connections.max.idle.ms": (0, _MAX_INT),
    "fetch.max.bytes": (1000, _MAX_INT - 512),
    "fetch.min.bytes": (1, 100_000_000),
    "fetch.wait.max.ms": (0, _FIVE_MINUTES),
    "linger.ms": (0, 900_000),
    "max.in.flight.requests.per.connection": (1, 5),  # of an idempotent producer
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "message.max.bytes": (1000, 1_000_000_000),
    "metadata.recovery.rebootstrap.trigger.ms": (0, _MAX_INT),
    "queue.buffering.max.kbytes": (1, _MAX_INT),
    "reconnect.backoff.max.ms": (0, _HOUR),
    "reconnect.backoff.ms": (0, _HOUR),
    "retry.backoff.max.ms": (1, _FIVE_MINUTES),
    "retry.backoff.ms": (1, _FIVE_MINUTES),
    "socket.connection.setup.timeout.ms": (1000, _MAX_INT),
    "socket.receive.buffer.bytes": (0, 100_000_000),
    "socket.send.buffer.bytes": (0, 100_000_000),
    "socket.timeout.ms": (10, _FIVE_MINUTES),
    "topic.metadata.refresh.interval.ms": (1, _HOUR),
    "transaction.timeout.ms": (1000, _MAX_INT),
}
_PLANNED = "Partitions are assigned with planned offsets. No consumer group is used on the source."
_NO_EFFECT = {
    (ALL, "There is no JMX here; `deltamirror run` serves /metrics."): """
        metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
        auto.include.jmx.reporter""",
    (ALL, "Every request has a fixed timeout here."): "default.api.timeout.ms max.block.ms retries",
    (ALL, "librdkafka has one fixed timeout for connection set-up, which does not grow."): """
        socket.connection.setup.timeout.max.ms""",
    (ALL, "A Java class cannot be used here."): """
        interceptor.classes security.providers config.providers""",
    (CONSUMER, _PLANNED): """
        group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
        session.timeout.ms max.poll.interval.ms partition.assignment.strategy enable.auto.commit
        auto.commit.interval.ms exclude.internal.topics internal.leave.group.on.close
        internal.throw.on.fetch.stable.offset.unsupported share.acknowledgement.mode
        share.acquire.mode""",
    (CONSUMER, "Fetch sizes and memory limit it."): "max.poll.records",
    (CONSUMER, "Reads never create topics."): "allow.auto.create.topics",
    (CONSUMER, "Records are copied as bytes."): "key.deserializer value.deserializer",
    (PRODUCER, "Records are copied as bytes."): "key.serializer value.serializer",
    (PRODUCER, "Always `all`: transactions require it."): "acks",
    (PRODUCER, "Always true: transactions require it."): "enable.idempotence",
    (PRODUCER, "Each flow and slot has one id, to fence older processes."): """
        transactional.id transaction.two.phase.commit.enable""",
    (PRODUCER, "transaction.timeout.ms limits delivery."): "delivery.timeout.ms",
    (PRODUCER, "A record keeps its partition."): """
        partitioner.class partitioner.ignore.keys partitioner.adaptive.partitioning.enable
        partitioner.availability.timeout.ms""",
    (PRODUCER, "librdkafka keeps metadata of the topics that it uses."): "metadata.max.idle.ms",
    (ADMIN, "Requests go to brokers, never to controllers."): "bootstrap.controllers",
}
# The status of both depends on their value: resources/config/client_properties.py decides it.
_BY_VALUE = (
    ClientKey("isolation.level", CONSUMER, "", _S, "The source is always read with read_committed.",
              allowed="read_committed|read_uncommitted"),
    ClientKey("auto.offset.reset", CONSUMER, "", _S, "earliest or latest.",
              allowed="earliest|latest"),
)  # fmt: skip

CLIENT_KEYS = (
    *(ClientKey(name, clients, name, kind) for name, clients, kind in _SAME),
    *(ClientKey(name, clients, there, kind) for name, clients, there, kind in _RENAMED),
    *_BOUNDED,
    *(
        ClientKey(name, clients, "", _S, note)
        for (clients, note), names in _NO_EFFECT.items()
        for name in names.split()
    ),
    *_BY_VALUE,
)

# Properties of all clients of a cluster. They are valid at the top level, an alias or a client.
# The second column is the librdkafka setting; resources/config/security.py translates them.
CONNECTION_KEYS = {
    "bootstrap.servers": "bootstrap.servers",
    "security.protocol": "security.protocol, in capitals",
    "sasl.mechanism": "sasl.mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
    "sasl.jaas.config": "sasl.username and sasl.password, or the client id and secret of OIDC",
    "sasl.oauthbearer.token.endpoint.url": "the same name, with sasl.oauthbearer.method=oidc",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
    "sasl.login.callback.handler.class": "none: OIDC needs no handler. Others are refused",
    "sasl.oauthbearer.jwt.retriever.class": "none: Java's class for a client id and secret means "
    "OIDC. Others are refused",
    "ssl.truststore.type": "PEM, or JKS or PKCS12, which the file's content decides",
    "ssl.truststore.location": "ssl.ca.location for a PEM file, ssl.ca.pem for a store",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.password": "none: deltamirror opens the store with it",
    "ssl.keystore.type": "PEM, or JKS or PKCS12, which the file's content decides",
    "ssl.keystore.location": "ssl.certificate.location and ssl.key.location for a PEM file, "
    "ssl.certificate.pem and ssl.key.pem with the content of a store",
    "ssl.keystore.password": "none: deltamirror opens the store with it",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.key.password": "ssl.key.password",
    "ssl.endpoint.identification.algorithm": "the same name. An empty value becomes `none`",
    "ssl.cipher.suites": "the same name, with OpenSSL's names of the suites",
}
NO_EFFECT_CONNECTION_KEYS = keys_by_name({
    "No effect: OpenSSL negotiates the newest protocol that both sides have.": """
        ssl.protocol ssl.enabled.protocols ssl.provider ssl.keymanager.algorithm
        ssl.trustmanager.algorithm ssl.secure.random.implementation""",
    "No effect: the Kafka client here is built without Kerberos.": """
        sasl.kerberos.service.name sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor""",
    "No effect: librdkafka refreshes a login automatically.": """
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter sasl.login.retry.backoff.ms
        sasl.login.retry.backoff.max.ms""",
    "No effect: brokers validate tokens. Clients only fetch them.": """
        sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
        sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
        sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwt.validator.class""",
})  # fmt: skip
REFUSED_CONNECTION_KEYS = keys_by_name({
    "a Java class cannot be used here: use PEM, PKCS12 or JKS files instead": """
        ssl.engine.factory.class""",
    "a Java class cannot be used here: use the mechanism's own settings": """
        sasl.client.callback.handler.class sasl.login.class""",
    "client assertions are not supported: use sasl.oauthbearer.client.credentials.*": """
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.jti.include
        sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file""",
})  # fmt: skip


def is_connection_key(name: str) -> bool:
    """Return whether *name* configures the connection, and so all clients of a cluster."""
    return name in ("bootstrap.servers", "security.protocol") or (
        name.startswith(("ssl.", "sasl.")) and name != "ssl.client.auth"
    )


def client_key(role: str, name: str) -> ClientKey | None:
    """Return the entry of *name* for a `consumer`, `producer` or `admin`; None if Java has none."""
    return _BY_ROLE[role].get(name)


def client_names(role: str) -> tuple[str, ...]:
    """Return the names of all properties of a client of the kind *role*."""
    shared = (*CONNECTION_KEYS, *NO_EFFECT_CONNECTION_KEYS, *REFUSED_CONNECTION_KEYS)
    return (*_BY_ROLE[role], *shared)


_BY_ROLE = {
    role: {key.name: key for key in CLIENT_KEYS if role[0].upper() in key.clients} for role in ROLES
}
