"""What becomes of every key of a file, one by one: the rules behind `config check`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from resources.config.client_properties import translate
from resources.config.config_providers import provider_of
from resources.config.mm2_properties import Mm2File, Place
from schemas.config.client_keys import ROLES, client_names, is_connection_key
from schemas.config.flow import Flow
from schemas.config.flow_keys import KEYS
from schemas.config.keys import (
    Key,
    KeyVerdict,
    Kind,
    Ruling,
    Status,
    fit_to_show,
    key_fit_to_show,
    split_list,
)
from schemas.config.worker_keys import worker_names, worker_ruling
from schemas.errors import (
    ConfigError,
    RefusedKeyError,
    UnknownAliasError,
    UnknownKeyError,
)
from schemas.mm2.name_filter import NameFilter

NO_SMT = KEYS["transforms"].otherwise
# What `A->B.<prefix><client property>` is, where it is read at all.
SYNCS_PRODUCER = (
    "MirrorMaker 2 gives this to its offset-syncs producer only: A->B.producer.override.* is for "
    "the records."
)
PER_CLUSTER = "One client serves all flows of a cluster: write it at the cluster's alias."
OTHER_BROKERS = "a flow is between its aliases: give other brokers an alias of their own"
FLOW_CLIENTS = {
    "source.consumer.": ("consumer", ""),
    "target.consumer.": ("consumer", PER_CLUSTER),
    "consumer.override.": ("consumer", PER_CLUSTER),
    "consumer.": ("consumer", ""),
    "producer.override.": ("producer", ""),
    "source.producer.": ("producer", SYNCS_PRODUCER),
    "target.producer.": ("producer", SYNCS_PRODUCER),
    "producer.": ("producer", SYNCS_PRODUCER),
    "source.admin.": ("admin", PER_CLUSTER),
    "target.admin.": ("admin", PER_CLUSTER),
    "admin.override.": ("admin", PER_CLUSTER),
    "admin.": ("admin", PER_CLUSTER),
    "source.cluster.": ("admin", PER_CLUSTER),
    "target.cluster.": ("admin", PER_CLUSTER),
}
SCOPE_NAMES = {"T": "at the top level", "C": "as alias.{}", "F": "as A->B.{}"}


@dataclass(frozen=True)
class Judgement:
    """A verdict, and the error that it is to who wants to run with this file (None: it is fit)."""

    verdict: KeyVerdict
    error: ConfigError | None


def judge(file: Mm2File) -> Iterator[Judgement]:
    """Yield a judgement for every key of *file*, in the file's order."""
    known = file.without_strangers()
    for key, written in file.written.items():
        ruling, error = _rule(known, key)
        shown = fit_to_show(key, written, ruling.status)
        yield Judgement(KeyVerdict(key_fit_to_show(key), shown, ruling.status, ruling.note), error)


def _rule(file: Mm2File, key: str) -> tuple[Ruling, ConfigError | None]:
    try:
        if key in file.failures:
            raise file.failures[key]
        place = file.place(key)
        ruling = _ruling(file, place, file.values[key])
    except UnknownAliasError as error:
        return Ruling(Status.UNKNOWN, f"{error}. {error.hint}"), error
    except ConfigError as error:
        return Ruling(Status.REFUSED, str(error)), error
    if ruling is None:
        unknown = UnknownKeyError(key_fit_to_show(key), _nearest(file, key, place))
        return Ruling(Status.UNKNOWN, unknown.hint), unknown
    if ruling.status is Status.REFUSED:
        return ruling, RefusedKeyError(key, ruling.note)
    return ruling, None


def _ruling(file: Mm2File, place: Place, value: str) -> Ruling | None:
    """Return what becomes of the key at *place*. None: nobody knows it."""
    key = KEYS.get(place.key)
    if key is not None and place.scope in key.scopes:
        return _table_ruling(file, place, key, value)
    return (
        _family_ruling(place, value)
        or _client_ruling(file, place)
        or worker_ruling(place.key)
        or _misplaced(place, key)
    )


def _table_ruling(file: Mm2File, place: Place, key: Key, value: str) -> Ruling:
    """Rule a key of the table. Raises InvalidPatternError."""
    if key.kind is Kind.PATTERNS and key.status is Status.HONOURED:
        NameFilter(split_list(value))
    if place.alias and key.name == "bootstrap.servers":
        return translate("admin", file.client(place.alias, "admin")).rulings[key.name]
    why = contradiction(file, place)
    return Ruling(Status.REFUSED, why) if why else key.rule(value)


def _family_ruling(place: Place, value: str) -> Ruling | None:
    """Rule keys that the file makes up the middle of: transforms, predicates, providers."""
    name = place.key
    if name.startswith(("transforms.", "predicates.")):
        return Ruling(Status.REFUSED, NO_SMT)
    if place.scope == "T" and name.startswith("config.providers."):
        if name.endswith(".class") and provider_of(value) is None:
            why = "only Kafka's own EnvVar-, File- and DirectoryConfigProvider are known here"
            return Ruling(Status.REFUSED, why)
        return Ruling(Status.HONOURED, "A config provider.")
    return None


def _client_ruling(file: Mm2File, place: Place) -> Ruling | None:
    """Rule a Java client property, with all that the same client is told elsewhere in mind."""
    if is_connection_key(place.key):
        return _connection_ruling(file, place)
    if place.flow is not None:
        return _flow_client_ruling(file, place)
    role, dot, name = place.key.partition(".")
    if not dot or role not in ROLES:
        return None
    if place.alias is not None:
        return translate(role, file.client(place.alias, role)).rulings.get(name)
    if name not in client_names(role):
        return None
    note = f"Not read at this place (MirrorMaker 2 neither): write it as alias.{place.key}."
    return Ruling(Status.NO_EFFECT, note)


def _connection_ruling(file: Mm2File, place: Place) -> Ruling | None:
    if place.flow is not None:
        alone = translate("admin", {place.key: file.values[place.written]})
        return Ruling(Status.NO_EFFECT, PER_CLUSTER) if place.key in alone.rulings else None
    alias = place.alias or file.aliases[0]
    return translate("admin", file.client(alias, "admin")).rulings.get(place.key)


def _flow_client_ruling(file: Mm2File, place: Place) -> Ruling | None:
    for prefix, (role, why_not) in FLOW_CLIENTS.items():
        if not place.key.startswith(prefix) or place.flow is None:
            continue
        name = place.key.removeprefix(prefix)
        if why_not is PER_CLUSTER and name == "bootstrap.servers":
            return Ruling(Status.REFUSED, OTHER_BROKERS)
        if why_not:
            return Ruling(Status.NO_EFFECT, why_not) if name in client_names(role) else None
        java = (
            file.data_producer(place.flow)
            if role == "producer"
            else file.client(place.flow.source, role, place.flow)
        )
        return translate(role, java).rulings.get(name)
    return None


def _misplaced(place: Place, key: Key | None) -> Ruling | None:
    """Rule what is read at other places only: say at which. None: it is read at none."""
    name, alias = place.key, place.alias or "alias"
    flow_clients = (name.removeprefix(prefix) for prefix in FLOW_CLIENTS if name.startswith(prefix))
    if key is not None:
        where = [SCOPE_NAMES[scope].format(name) for scope in key.scopes]
    elif any(bare in client_names(role) for bare in flow_clients for role in ROLES):
        where = [f"as A->B.{name}"]
    else:
        where = [f"as {alias}.{role}.{name}" for role in ROLES if name in client_names(role)]
    note = f"Not read at this place (MirrorMaker 2 neither): write it {' or '.join(where)}."
    return Ruling(Status.NO_EFFECT, note) if where else None


def _nearest(file: Mm2File, key: str, place: Place) -> str | None:
    """Return the known key that is most like *key*, written as the file would have it."""
    prefix = key[: len(key) - len(place.key)]
    names = {prefix + name for name, known in KEYS.items() if place.scope in known.scopes}
    for role in ROLES:
        before = [f"{role}."] if place.alias else []
        if place.flow is not None:
            before = [p for p, (r, why_not) in FLOW_CLIENTS.items() if r == role and not why_not]
        names |= {f"{prefix}{p}{name}" for p in before for name in client_names(role)}
    names |= {prefix + name for name in client_names("admin") if is_connection_key(name)}
    names |= {prefix + name for name in worker_names() if not name.endswith("*")}
    if place.scope == "T":
        names |= {f"{alias}.bootstrap.servers" for alias in file.aliases}
    return next(iter(difflib.get_close_matches(key, sorted(names), n=1, cutoff=0.7)), None)


SYNCS = "emit.offset-syncs.enabled"
# Of a connector's keys these set the offset syncs up (MirrorConnectorConfig).
OF_SYNCS = ("offset-syncs-", "offset-syncs.topic.")


def contradiction(file: Mm2File, place: Place) -> str | None:
    """Return why the key at *place* cannot stand beside others of *file*. None: it can.

    MirrorSourceConnector refuses `emit.offset-syncs.enabled=false` beside keys that set the syncs
    up (KIP-1031); it knows the word in small letters only and takes `False`. A key at the top level
    is judged for every enabled flow that does not say it itself.
    """
    if place.key != SYNCS or file.values[place.written] != "false":
        return None
    for flow in file.enabled_flows():
        if place.flow == flow or (place.scope == "T" and SYNCS not in file.at_flow(flow)):
            for key in _keys_of_syncs(file, flow):
                return f"no offset syncs are written, but {key} sets them up: say one of them"
    return None


def _keys_of_syncs(file: Mm2File, flow: Flow) -> list[str]:
    at_flow = [f"{flow.name}.{key}" for key in file.at_flow(flow) if key.startswith(OF_SYNCS)]
    return at_flow + [key for key in file.top() if key.startswith(OF_SYNCS)]
