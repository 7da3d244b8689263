"""Java client properties: what librdkafka calls them, or why they do nothing here.

Measured against librdkafka 2.16. A Java name that is missing here is unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.config.keys import BITS, Kind, parse_boolean, parse_integer

ROLES = ("consumer", "producer", "admin")
ALL, CONSUMER, PRODUCER, ADMIN = "CPA", "C", "P", "A"


@dataclass(frozen=True)
class ClientKey:
    """A Java client property.

    *clients* holds C, P, A for consumer, producer, admin. *librdkafka* is its name there, or empty:
    then *note* says why it has no effect. Of a number *minimum* and *maximum* are Java's. Java
    refuses what the regular expression *allowed* does not match.
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
        """Return what *value* says. Raises ValueError where Java refuses it."""
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
# What librdkafka 2.16 takes (its CONFIGURATION.md): Java's numbers beyond are brought to its bound.
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
_METRICS = "There is no JMX here; `deltamirror run` serves /metrics."
_CALLS = "Every call has its own bound here."
_PLANNED = "Partitions are assigned at planned offsets: no consumer group is used on the source."
_PARTITION = "A record keeps its partition."
_NO_EFFECT = {
    (ALL, _METRICS): (
        "metric.reporters", "metrics.num.samples", "metrics.recording.level",
        "metrics.sample.window.ms", "auto.include.jmx.reporter",
    ),
    (ALL, _CALLS): ("default.api.timeout.ms", "max.block.ms", "retries"),
    (ALL, "librdkafka has one bound for a connection's set-up, not a growing one."): (
        "socket.connection.setup.timeout.max.ms",
    ),
    (ALL, "A Java class cannot be used here."): (
        "interceptor.classes", "security.providers", "config.providers",
    ),
    (CONSUMER, _PLANNED): (
        "group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
        "heartbeat.interval.ms", "session.timeout.ms", "max.poll.interval.ms",
        "partition.assignment.strategy", "enable.auto.commit", "auto.commit.interval.ms",
        "exclude.internal.topics", "internal.leave.group.on.close",
        "internal.throw.on.fetch.stable.offset.unsupported", "share.acknowledgement.mode",
        "share.acquire.mode",
    ),
    (CONSUMER, "Reads are as big as fetches and memory allow."): ("max.poll.records",),
    (CONSUMER, "A topic of the source is never created by reading it."): (
        "allow.auto.create.topics",
    ),
    (CONSUMER, "Records travel as bytes, untouched."): ("key.deserializer", "value.deserializer"),
    (PRODUCER, "Records travel as bytes, untouched."): ("key.serializer", "value.serializer"),
    (PRODUCER, "Always `all`: a transaction needs it."): ("acks",),
    (PRODUCER, "Always true: a transaction needs it."): ("enable.idempotence",),
    (PRODUCER, "One id per flow and slot: it fences older processes."): (
        "transactional.id", "transaction.two.phase.commit.enable",
    ),
    (PRODUCER, "transaction.timeout.ms bounds delivery: a transaction is whole or not at all."): (
        "delivery.timeout.ms",
    ),
    (PRODUCER, _PARTITION): (
        "partitioner.class", "partitioner.ignore.keys",
        "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
    ),
    (PRODUCER, "librdkafka keeps what it uses."): ("metadata.max.idle.ms",),
    (ADMIN, "Brokers are asked, never controllers."): ("bootstrap.controllers",),
}  # fmt: skip
# Both are ruled by their value, in resources/config/client_properties.py.
_BY_VALUE = (
    ClientKey("isolation.level", CONSUMER, "", _S, "Always read_committed.",
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
        for name in names
    ),
    *_BY_VALUE,
)

# What a cluster's three clients share: written at the top level, at an alias or at a client.
# The second column is what becomes of it; resources/config/client_properties.py does it.
CONNECTION_KEYS = {
    "bootstrap.servers": "bootstrap.servers",
    "security.protocol": "security.protocol, in capitals",
    "sasl.mechanism": "sasl.mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
    "sasl.jaas.config": "sasl.username and sasl.password, or the client id and secret of OIDC",
    "sasl.oauthbearer.token.endpoint.url": "the same, with sasl.oauthbearer.method=oidc",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
    "sasl.login.callback.handler.class": "none: OIDC needs no handler; others are refused",
    "sasl.oauthbearer.jwt.retriever.class": "none: Java's for a client's id and secret is OIDC; "
    "others are refused",
    "ssl.truststore.type": "PEM, or JKS or PKCS12, which of the two the file itself tells",
    "ssl.truststore.location": "ssl.ca.location for PEM; ssl.ca.pem with what a store holds",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.password": "none: it opens the store",
    "ssl.keystore.type": "PEM, or JKS or PKCS12, which of the two the file itself tells",
    "ssl.keystore.location": "ssl.certificate/key.location for PEM; .pem with what a store holds",
    "ssl.keystore.password": "none: it opens the store",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.key.password": "ssl.key.password",
    "ssl.endpoint.identification.algorithm": "the same; empty becomes `none`",
    "ssl.cipher.suites": "the same, in OpenSSL's names",
}
_OPENSSL = "No effect: OpenSSL negotiates the newest protocol that both sides have."
_KERBEROS = "No effect: the Kafka client here is built without Kerberos."
_LOGIN = "No effect: librdkafka refreshes a login by itself."
_BROKER_SIDE = "No effect: brokers check tokens, clients only fetch them."
NO_EFFECT_CONNECTION_KEYS = {
    **dict.fromkeys(("ssl.protocol", "ssl.enabled.protocols", "ssl.provider",
                     "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
                     "ssl.secure.random.implementation"), _OPENSSL),
    **dict.fromkeys(("sasl.kerberos.service.name", "sasl.kerberos.kinit.cmd",
                     "sasl.kerberos.min.time.before.relogin",
                     "sasl.kerberos.ticket.renew.jitter",
                     "sasl.kerberos.ticket.renew.window.factor"), _KERBEROS),
    **dict.fromkeys(("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
                     "sasl.login.refresh.buffer.seconds",
                     "sasl.login.refresh.min.period.seconds",
                     "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
                     "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms"), _LOGIN),
    **dict.fromkeys(("sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience",
                     "sasl.oauthbearer.expected.issuer",
                     "sasl.oauthbearer.jwks.endpoint.refresh.ms",
                     "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
                     "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
                     "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.scope.claim.name",
                     "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.header.urlencode",
                     "sasl.oauthbearer.jwt.validator.class"), _BROKER_SIDE),
}  # fmt: skip
_ASSERTIONS = "no assertion is sent here: use sasl.oauthbearer.client.credentials.*"
_CLASS = "a Java class cannot be used here"
REFUSED_CONNECTION_KEYS = {
    "ssl.engine.factory.class": f"{_CLASS}: give PEM, PKCS12 or JKS files instead",
    "sasl.client.callback.handler.class": f"{_CLASS}: give the mechanism's own settings",
    "sasl.login.class": f"{_CLASS}: give the mechanism's own settings",
    **dict.fromkeys(("sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.file",
                     "sasl.oauthbearer.assertion.claim.aud", "sasl.oauthbearer.assertion.claim.iss",
                     "sasl.oauthbearer.assertion.claim.exp.seconds",
                     "sasl.oauthbearer.assertion.claim.jti.include",
                     "sasl.oauthbearer.assertion.claim.nbf.seconds",
                     "sasl.oauthbearer.assertion.claim.sub",
                     "sasl.oauthbearer.assertion.private.key.file",
                     "sasl.oauthbearer.assertion.private.key.passphrase",
                     "sasl.oauthbearer.assertion.template.file"), _ASSERTIONS),
}  # fmt: skip


def is_connection_key(name: str) -> bool:
    """Return whether *name* says how to connect: it then holds for all clients of a cluster."""
    return name in ("bootstrap.servers", "security.protocol") or (
        name.startswith(("ssl.", "sasl.")) and name != "ssl.client.auth"
    )


def client_key(role: str, name: str) -> ClientKey | None:
    """Return the row of *name* for a `consumer`, `producer` or `admin`. None: Java has none."""
    return _BY_ROLE[role].get(name)


def client_names(role: str) -> tuple[str, ...]:
    """Return every property that a client of the kind *role* may have."""
    shared = (*CONNECTION_KEYS, *NO_EFFECT_CONNECTION_KEYS, *REFUSED_CONNECTION_KEYS)
    return (*_BY_ROLE[role], *shared)


_BY_ROLE = {
    role: {key.name: key for key in CLIENT_KEYS if role[0].upper() in key.clients} for role in ROLES
}
