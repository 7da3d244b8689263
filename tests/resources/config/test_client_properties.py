import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from resources.config.client_properties import client_settings, translate_settings
from schemas.config.client_keys import ROLES, client_key, client_names, is_connection_key
from schemas.config.keys import BITS, KeyStatus, Kind
from schemas.errors.configuration import RefusedKeyError

CLIENTS = {"consumer": Consumer, "producer": Producer, "admin": AdminClient}
STRINGS = {
    "client.dns.lookup": "use_all_dns_ips",
    "metadata.recovery.strategy": "rebootstrap",
    "compression.type": "zstd",
    "compression.zstd.level": "3",
    "isolation.level": "read_committed",
    "auto.offset.reset": "latest",
}
NUMBERS = {"socket.connection.setup.timeout.ms": "10000", "compression.gzip.level": "6"}
NUMBERS |= {"compression.lz4.level": "6"}


def example_value(key):
    if key.name in STRINGS:
        return STRINGS[key.name]
    return {Kind.BOOLEAN: "true", Kind.STRING: "x"}.get(key.kind) or NUMBERS.get(key.name, "2000")


@pytest.mark.parametrize("role", ROLES)
def test_librdkafka_accepts_every_translated_property(role):
    keys = [client_key(role, name) for name in client_names(role) if client_key(role, name)]
    java = {key.name: example_value(key) for key in keys} | {"bootstrap.servers": "localhost:1"}

    settings = client_settings(role, java, "")

    CLIENTS[role]({**settings, "group.id": "g"} if role == "consumer" else settings)


def numbers_of(role):
    keys = [client_key(role, name) for name in client_names(role) if client_key(role, name)]
    return [key for key in keys if key.librdkafka and key.kind in BITS]


@pytest.mark.parametrize("role", ROLES)
def test_every_number_that_java_accepts_becomes_one_that_librdkafka_accepts(role):
    for key in numbers_of(role):
        codec = {"compression.type": key.name.split(".")[1]} if "level" in key.name else {}
        widest = 2 ** (BITS[key.kind] - 1)
        minimum = -widest if key.minimum is None else key.minimum
        maximum = key.maximum or widest - 1
        for number in (-1, 9) if "gzip" in key.name else (minimum, maximum):
            java = {key.name: str(number), **codec}
            settings = client_settings(role, java, "")
            CLIENTS[role]({**settings, "group.id": "g"} if role == "consumer" else settings)


@pytest.mark.parametrize(
    ("java", "first", "longest"),
    [
        pytest.param({}, 50, 1000, id="nothing said"),
        pytest.param({"reconnect.backoff.max.ms": "20"}, 20, 20, id="the longest alone"),
        pytest.param({"reconnect.backoff.ms": "20000"}, 20000, 20000, id="the first alone"),
        pytest.param(
            {"reconnect.backoff.ms": "500", "reconnect.backoff.max.ms": "100"},
            *(100, 100),
            id="the first longer than the longest",
        ),
    ],
)
def test_the_first_reconnect_backoff_is_at_most_the_longest(java, first, longest):
    settings = client_settings("admin", java, "")

    AdminClient(settings)
    assert settings["reconnect.backoff.ms"] == first
    assert settings["reconnect.backoff.max.ms"] == longest


@pytest.mark.parametrize("role", ROLES)
def test_every_property_has_its_own_check(role):
    java = {key: "1000" for key in client_names(role) if not is_connection_key(key)}

    assert translate_settings(role, java).checks.keys() == java.keys()


@pytest.mark.parametrize(
    ("role", "name", "value", "setting", "number"),
    [
        ("consumer", "fetch.max.wait.ms", "100", "fetch.wait.max.ms", 100),
        ("consumer", "max.partition.fetch.bytes", "8388608", "max.partition.fetch.bytes", 8388608),
        ("consumer", "check.crcs", "False", "check.crcs", False),
        ("consumer", "receive.buffer.bytes", "-1", "socket.receive.buffer.bytes", 0),
        ("producer", "buffer.memory", "134217728", "queue.buffering.max.kbytes", 131072),
        ("producer", "max.request.size", "8388608", "message.max.bytes", 8388608),
        ("producer", "max.in.flight.requests.per.connection", "10", None, 5),
        ("producer", "batch.size", "262144", "batch.size", 262144),
        ("admin", "request.timeout.ms", "5000", "socket.timeout.ms", 5000),
        ("admin", "request.timeout.ms", "600000", "socket.timeout.ms", 300000),
        ("admin", "connections.max.idle.ms", "-1", None, 0),
        ("producer", "linger.ms", "1000000", None, 900000),
        ("consumer", "retry.backoff.ms", "0", None, 1),
    ],
)
def test_a_property_is_translated_to_librdkafkas_name_and_unit(role, name, value, setting, number):
    assert translate_settings(role, {name: value}).settings[setting or name] == number


def test_a_property_with_the_same_name_is_honoured_and_any_other_is_translated():
    checks = translate_settings("producer", {"linger.ms": "20", "buffer.memory": "1048576"}).checks

    assert checks["linger.ms"].status is KeyStatus.HONOURED
    assert checks["buffer.memory"].status is KeyStatus.TRANSLATED
    assert "queue.buffering.max.kbytes=1024" in checks["buffer.memory"].note


def test_a_compression_level_applies_only_to_its_codec():
    java = {"compression.type": "zstd", "compression.zstd.level": "3", "compression.lz4.level": "9"}
    translation = translate_settings("producer", java)

    assert translation.settings["compression.level"] == 3
    assert translation.checks["compression.lz4.level"].status is KeyStatus.NO_EFFECT


def test_consumers_check_crcs_by_default_as_in_java():
    assert translate_settings("consumer", {}).settings["check.crcs"]


def test_the_source_is_always_read_with_read_committed():
    translation = translate_settings("consumer", {"isolation.level": "read_uncommitted"})

    assert "isolation.level" not in translation.settings
    assert translation.checks["isolation.level"].status is KeyStatus.NO_EFFECT


def test_a_property_that_java_does_not_have_has_no_check():
    assert translate_settings("consumer", {"fetch.mn.bytes": "1"}).checks == {}


@pytest.mark.parametrize(
    ("role", "name", "value"),
    [
        ("consumer", "fetch.min.bytes", "many"),
        ("consumer", "auto.offset.reset", "none"),
        ("consumer", "check.crcs", "1"),
        ("consumer", "fetch.min.bytes", "-1"),
        ("consumer", "fetch.max.bytes", "2147483648"),
        ("consumer", "isolation.level", "read"),
        ("consumer", "client.dns.lookup", "default"),
        ("producer", "compression.type", "brotli"),
        ("producer", "compression.lz4.level", "18"),
        ("producer", "compression.gzip.level", "0"),
    ],
)
def test_an_invalid_value_is_refused(role, name, value):
    with pytest.raises(RefusedKeyError) as error:
        client_settings(role, {name: value}, "A.consumer.")

    assert str(error.value).startswith(f"A.consumer.{name}: ")
