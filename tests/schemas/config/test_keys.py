import pytest

from schemas.config.client_keys import CLIENT_KEYS, CONNECTION_KEYS, is_connection_key
from schemas.config.flow_keys import KEYS, SECTIONS
from schemas.config.keys import (
    MASK,
    KeyStatus,
    Kind,
    check_list,
    parse_boolean,
    parse_integer,
    redact,
    redact_key,
    split_list,
)
from schemas.mm2.name_filter import NameFilter


@pytest.mark.parametrize(
    ("text", "entries"),
    [("", ()), (" ", ()), ("a", ("a",)), (" a , b,c ", ("a", "b", "c")), ("a,,b", ("a", "", "b"))],
)
def test_a_list_is_split_at_commas_and_entries_are_trimmed(text, entries):
    assert split_list(text) == entries


def test_a_boolean_is_true_or_false_in_any_case():
    assert parse_boolean(" TRUE ")
    assert not parse_boolean("False")
    with pytest.raises(ValueError, match="true or false"):
        parse_boolean("yes")


@pytest.mark.parametrize("text", ["", "1.5", "1_000", "ten", "0x1"])
def test_an_integer_is_written_in_digits(text):
    with pytest.raises(ValueError, match="whole number"):
        parse_integer(text)


def test_an_integer_has_a_minimum():
    assert parse_integer(" -1 ", -1) == -1
    with pytest.raises(ValueError, match="at least 1"):
        parse_integer("0", 1)


@pytest.mark.parametrize(
    ("bits", "most"), [(16, 32767), (32, 2147483647), (64, 9223372036854775807)]
)
def test_an_integer_has_the_range_of_javas_type(bits, most):
    assert parse_integer(f"+{most}", bits=bits) == most
    assert parse_integer(str(-most - 1), bits=bits) == -most - 1
    for number in (most + 1, -most - 2):
        with pytest.raises(ValueError, match=f"from {-most - 1} to {most}"):
            parse_integer(str(number), bits=bits)


@pytest.mark.parametrize(
    ("text", "why"), [("a,,b", "empty"), ("a,", "empty"), ("a, b ,a", "twice")]
)
def test_a_list_with_an_empty_or_repeated_entry_is_rejected(text, why):
    with pytest.raises(ValueError, match=why):
        check_list(text)


def test_the_list_of_clusters_may_have_repeated_but_no_empty_names():
    check_list("a, b, a", allows_duplicates=True)
    with pytest.raises(ValueError, match="empty"):
        check_list("a,,a", allows_duplicates=True)


@pytest.mark.parametrize(
    "key",
    [
        "A.sasl.jaas.config",
        "A.ssl.key.password",
        "A.ssl.keystore.key",
        "sasl.oauthbearer.client.credentials.client.secret",
    ],
)
def test_a_secret_is_redacted_but_a_reference_to_one_is_shown(key):
    assert redact(key, "hunter2", KeyStatus.HONOURED) == MASK
    assert redact(key, "${env:PASSWORD}", KeyStatus.HONOURED) == "${env:PASSWORD}"


def test_a_key_that_may_be_a_line_of_pem_is_shortened():
    line = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"

    assert redact_key(line) == f"MIGH{MASK}"
    assert redact_key(f"A.{line}") == f"A.{line}"


def test_the_value_of_an_unknown_key_is_redacted():
    assert redact("A.ssl.kye.pasword", "hunter2", KeyStatus.UNKNOWN) == MASK


@pytest.mark.parametrize("key", ["topics", "key.converter", "sasl.oauthbearer.token.endpoint.url"])
def test_values_that_are_no_secrets_are_shown(key):
    assert redact(key, "x", KeyStatus.HONOURED) == "x"


def test_no_key_is_described_twice():
    names = [key.name for section in SECTIONS.values() for key in section]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("key", [key for key in KEYS.values() if key.default])
def test_every_default_is_a_valid_value_of_its_key(key):
    if key.name == "tasks.max":  # its default is counted on the machine
        return
    assert key.check(key.default).status is not KeyStatus.REFUSED or key.status is KeyStatus.REFUSED
    if key.kind is Kind.PATTERNS:
        NameFilter(split_list(key.default))


def test_a_client_property_has_a_librdkafka_name_or_a_reason_why_not():
    assert all(bool(key.librdkafka) != bool(key.note) for key in CLIENT_KEYS)
    assert all(is_connection_key(name) for name in CONNECTION_KEYS)
