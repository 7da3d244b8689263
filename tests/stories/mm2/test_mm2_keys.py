"""MirrorMaker 2's own classes and `config check` agree on every key with every prefix."""

import re
from itertools import combinations_with_replacement, product

import pytest
from javaproperties import dumps

from resources.config.load import check_config, read_config
from resources.config.mm2_properties import Mm2File
from schemas.config.client_keys import client_key, client_names
from schemas.config.flow import Flow
from schemas.config.flow_keys import KEYS
from schemas.config.keys import KeyStatus, Kind, parse_boolean, split_list
from schemas.mm2.differences import DIFFERENCES
from tests.support.mm2_java_classes import mm2_tools
from tests.support.mm2_key_reference import CONNECTORS, FILE, Mm2KeyReference

pytestmark = pytest.mark.story

ROLES = ("consumer", "producer", "admin")
PLACES = {"T": "", "C": "B.", "F": "A->B."}
# Worker keys that MirrorMaker 2 reads without a prefix (MirrorMakerConfig.workerConfig).
TOP_OF_WORKER = (
    *("offset.storage", "config.storage", "status.storage", "task", "worker"),
    *("key.converter", "value.converter", "header.converter"),
)
TAKEN = {KeyStatus.HONOURED, KeyStatus.TRANSLATED}
ON_PURPOSE = {key for difference in DIFFERENCES for key in difference.keys}


@pytest.fixture(scope="module")
def mm2():
    with mm2_tools() as gateway:
        yield Mm2KeyReference(gateway)


@pytest.fixture(scope="module")
def read_at(mm2):
    """The keys that MirrorMaker 2 reads with each prefix, from its definitions."""
    connectors = frozenset().union(*map(mm2.names, CONNECTORS))
    cluster, worker = mm2.names("cluster"), mm2.names("worker")
    clients = {f"{role}.{name}" for role in ROLES for name in mm2.names(role)}
    overrides = {f"{role}.override.{name}" for role in ROLES for name in mm2.names(role)}
    filters = ("topic filter", "group filter", "property filter")
    of_sides = {f"{side}.{name}" for side in ("source", "target") for name in clients}
    of_sides |= {f"{side}.cluster.{name}" for side in ("source", "target") for name in cluster}
    return {
        "T": mm2.names("file")
        | connectors
        | cluster
        | {name for name in worker if name.startswith(TOP_OF_WORKER)},
        "C": cluster | worker | clients,
        "F": connectors
        | mm2.names("source connector").union(*map(mm2.names, filters))
        | (clients | overrides | of_sides),
    }


@pytest.fixture
def ours(tmp_path):
    """Statuses of `config check` by the keys of a file."""

    def checks(entries):
        path = tmp_path / "mm2.properties"
        path.write_text(dumps({**FILE, **entries}, timestamp=False), encoding="iso-8859-1")
        return {each.key: each for each in check_config(path)}

    return checks


@pytest.mark.parametrize("prefix_name", PLACES)
def test_no_key_that_mirrormaker_2_reads_is_unknown_here(read_at, ours, prefix_name):
    keys = {f"{PLACES[prefix_name]}{name}" for name in read_at[prefix_name]} - FILE.keys()
    checks = ours(dict.fromkeys(keys, "1"))

    assert len(keys) > 100
    assert [key for key in sorted(keys) if checks[key].status is KeyStatus.UNKNOWN] == []


@pytest.mark.parametrize("prefix_name", PLACES)
def test_a_key_that_mirrormaker_2_reads_only_in_other_modes_has_no_effect_and_a_reason(
    read_at, ours, prefix_name
):
    elsewhere = frozenset().union(*read_at.values()) - read_at[prefix_name]
    keys = {f"{PLACES[prefix_name]}{name}" for name in elsewhere} - FILE.keys()
    checks = ours(dict.fromkeys(keys, "1"))

    assert len(keys) > 10
    assert [key for key in sorted(keys) if checks[key].status is not KeyStatus.NO_EFFECT] == []
    assert all(checks[key].note for key in keys)


VALUES = (
    *("true", "FALSE", " true ", "yes", "", "1", " 5 ", "-1", "-2", "0", "1.5", "1_000"),
    *("40000", "99999999999", "1" + "0" * 20, "a,a", "a,,b", " a , b ", ",", "source", "SOURCE"),
    *("legacy", "new, legacy", "all", "restart", "interval", "Requested"),
)


# Values (regular expressions) that only one of the two refuses.
STRICTER = {
    **dict.fromkeys((name for name in KEYS if name.endswith("replication.factor")), "-2"),
    "use.defaults.from": "(?!source$|target$).*",
    "errors.tolerance": "all",
    "transforms": ".+",
    "predicates": ".+",
}
LAXER = {"connector.plugin.version": "a,,b|new, legacy"}
DEFAULTS = {"tasks.max", *(name for name in KEYS if name.endswith(".topic.replication.factor"))}


@pytest.fixture(scope="module")
def definition_of(mm2):
    """The ConfigDef of each flow key that deltamirror has too."""
    definitions = ("property filter", "source connector", *reversed(CONNECTORS))
    found = {name: each for each in definitions for name in mm2.names(each)}
    return {name: found[name] for name, key in KEYS.items() if "F" in key.scopes and name in found}


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_refused_if_mirrormaker_2_refuses_it(mm2, definition_of, ours, value):
    theirs = set()
    for definition in set(definition_of.values()):
        names = [name for name, each in definition_of.items() if each == definition]
        theirs |= mm2.bad_values(definition, dict.fromkeys(names, value))
    checks = ours({f"A->B.{name}": value for name in definition_of})
    refused = {n for n in definition_of if checks[f"A->B.{n}"].status is KeyStatus.REFUSED}

    more, fewer = (
        {name for name, pattern in known.items() if re.fullmatch(pattern, value)}
        for known in (STRICTER, LAXER)
    )
    assert refused == (theirs | more) - fewer


CLIENT_VALUES = (
    *("true", "", " 5 ", "-2", "-1", "0", "18", "1.5", "9999999999", "zstd", "None", "none"),
    *("use_all_dns_ips", "read_committed", "earliest"),
)


@pytest.mark.parametrize("role", ROLES)
def test_a_client_setting_is_refused_if_java_refuses_it(mm2, ours, role):
    names = [n for n in client_names(role) if (key := client_key(role, n)) and key.librdkafka]

    for value in CLIENT_VALUES:
        checks = ours({f"B.{role}.{name}": value for name in names})
        refused = {n for n in names if checks[f"B.{role}.{n}"].status is KeyStatus.REFUSED}
        assert refused == mm2.bad_values(role, dict.fromkeys(names, value)), value


def test_each_key_has_mirrormaker_2s_default(mm2, definition_of):
    taken = {name: each for name, each in definition_of.items() if KEYS[name].status in TAKEN}
    filled_in = mm2.filled_in()
    theirs = {name: filled_in.get(name) or mm2.default(each, name) for name, each in taken.items()}

    others = {n for n in taken if _meant(n, KEYS[n].default) != _meant(n, theirs[n])}
    assert len(taken) > 30
    assert others == DEFAULTS


def _meant(name, text):
    """Return a default in a normal form; for a class, its name."""
    if text is None:
        return None
    match KEYS[name].kind:
        case Kind.LIST | Kind.PATTERNS:
            return split_list(text)
        case Kind.BOOLEAN:
            return parse_boolean(text)
    return text.rpartition(".")[2] or text


# Lines besides A->B.enabled=true; keys that MirrorMaker 2 refuses; keys that deltamirror refuses.
SYNCS, CHECKPOINTS = "emit.offset-syncs.enabled", "emit.checkpoints.enabled"
TOGETHER = {
    "nothing": ({}, "", ""),
    "no syncs, set up at the flow": (
        {f"A->B.{SYNCS}": "false", "A->B.offset-syncs.topic.location": "target"},
        SYNCS,
        f"A->B.{SYNCS}",
    ),
    "no syncs, set up at the top": (
        {SYNCS: "false", "offset-syncs.topic.replication.factor": "1"},
        SYNCS,
        SYNCS,
    ),
    "no syncs at the flow, set up at the top": (
        {f"A->B.{SYNCS}": "false", "offset-syncs.topic.replication.factor": "1"},
        SYNCS,
        f"A->B.{SYNCS}",
    ),
    "no syncs, in capitals": ({SYNCS: "False", "offset-syncs.topic.location": "target"}, "", ""),
    "no syncs, but at the flow": (
        {SYNCS: "false", f"A->B.{SYNCS}": "true", "offset-syncs.topic.location": "target"},
        "",
        "",
    ),
    "no syncs of the other flow": (
        {f"B->A.{SYNCS}": "false", "offset-syncs.topic.location": "target"},
        "",
        "",
    ),
    "no syncs, set up at a cluster": (
        {SYNCS: "false", "A.offset-syncs.topic.location": "x"},
        SYNCS,
        "",
    ),
    "no syncs": ({SYNCS: "false"}, SYNCS, ""),
    "no checkpoints": ({CHECKPOINTS: "false"}, CHECKPOINTS, ""),
    "no checkpoints, no flow": ({CHECKPOINTS: "false", "A->B.enabled": "false"}, "", ""),
    "exactly once": ({"A->B.exactly.once.support": "required"}, "exactly.once.support", ""),
    "exactly once of committed records": (
        {
            "A->B.exactly.once.support": "required",
            "A.consumer.isolation.level": "read_committed",
        },
        "",
        "",
    ),
    "a cluster twice": ({"clusters": "A,B,A"}, "", ""),
    "a cluster without a name": ({"clusters": "A,,B"}, "the file", "clusters"),
    "no such protocol": ({"security.protocol": "TLS"}, "the file", "security.protocol"),
    "a protocol in small letters": ({"security.protocol": "ssl"}, "", ""),
    "a provider twice": (
        {"config.providers": "env,env"},
        "config.providers",
        "config.providers",
    ),
}


@pytest.mark.parametrize(("entries", "theirs", "our"), TOGETHER.values(), ids=TOGETHER)
def test_keys_that_contradict_each_other_are_refused_as_by_mirrormaker_2(
    mm2, ours, entries, theirs, our
):
    entries = {"A->B.enabled": "true", **entries}
    refused = {key for key, each in ours(entries).items() if each.status is KeyStatus.REFUSED}

    assert mm2.refusals(entries) == set(filter(None, [theirs]))
    assert refused == set(filter(None, [our]))
    assert bool(theirs) == bool(our) or theirs in ON_PURPOSE


def test_each_difference_in_keys_is_in_the_table_of_the_docs():
    assert STRICTER.keys() | LAXER.keys() | DEFAULTS <= ON_PURPOSE


SWITCHES = ("enabled", "A->B.enabled", "emit.heartbeats.enabled", "B->A.emit.heartbeats.enabled")


def test_the_same_flows_run_and_emit_heartbeats_as_with_mirrormaker_2(mm2, tmp_path):
    for values in product((None, "true", "false"), repeat=len(SWITCHES)):
        pairs = zip(SWITCHES, values, strict=True)
        entries = {key: value for key, value in pairs if value is not None}
        path = tmp_path / "mm2.properties"
        path.write_text(dumps({**FILE, **entries}, timestamp=False), encoding="iso-8859-1")
        read = read_config(path)

        flows = {each.flow.name for each in read.flows}
        assert (flows, {each.flow.name for each in read.heartbeats}) == mm2.runs(entries), entries


# Prefixes of a client key, including prefixes that MirrorMaker 2 does not read.
PRECEDENCE = {
    "consumer": ("", "A.", "A.consumer.", "A->B.consumer.", "A->B.source.consumer.", "A->B."),
    "producer": ("", "B.", "B.producer.", "A->B.producer.override.", "A->B.producer."),
    "admin": ("", "A.", "A.admin.", "admin.", "B.", "A->B."),
}
# Keys by kind of client: connection keys, and keys of one kind of client.
NAMES = {
    "connecting": dict.fromkeys(ROLES, ("cluster",)),
    "of its own": {
        "consumer": ("consumer", "cluster"),
        "producer": ("producer", "cluster", "worker"),  # a worker reads them with the prefix of B
        "admin": ("admin", "cluster"),
    },
}


@pytest.mark.parametrize("what", NAMES)
@pytest.mark.parametrize("client", ROLES)
def test_the_same_prefix_of_a_client_key_wins_as_with_mirrormaker_2(mm2, tmp_path, client, what):
    asked = {"consumer": mm2.consumer, "producer": mm2.producer, "admin": mm2.source_admin}[client]
    of_its_own = asked({})
    names = [name for name in mm2.free_names(*NAMES[what][client]) if name not in of_its_own]
    pairs = combinations_with_replacement(PRECEDENCE[client], 2)
    places = dict(zip(names, pairs, strict=False))
    entries = {
        f"{prefix_name}{name}": f"at {prefix_name}"
        for name, pair in places.items()
        for prefix_name in pair
    }

    theirs, found = asked(entries), _client(client, tmp_path, entries)

    assert next(pairs, None) is None  # there were enough names for all pairs of prefixes
    assert {n: found.get(n) for n in places} == {n: theirs.get(n) for n in places}


def _client(client, home, entries):
    path = home / "mm2.properties"
    path.write_text(dumps({**FILE, **entries}, timestamp=False), encoding="iso-8859-1")
    file, flow = Mm2File.read(path), Flow("A", "B")
    if client == "producer":
        return file.data_producer(flow)
    return file.client("A", client, flow if client == "consumer" else None)
