"""What becomes of every key of a file, one by one: the rules behind `config check`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from resources.config.client_properties import translate_settings
from resources.config.config_providers import provider_of
from resources.config.mm2_properties import Mm2File, ScopedKey
from schemas.config.client_keys import ROLES, client_names, is_connection_key
from schemas.config.flow import Flow
from schemas.config.flow_keys import KEYS
from schemas.config.keys import (
    Key,
    KeyReport,
    KeyResult,
    KeyStatus,
    Kind,
    redact,
    redact_key,
    split_list,
)
from schemas.config.worker_keys import worker_key_result, worker_names
from schemas.errors import (
    ConfigError,
    RefusedKeyError,
    UnknownAliasError,
    UnknownKeyError,
)
from schemas.mm2.name_filter import NameFilter

NO_SMT = KEYS["transforms"].refusal
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
class KeyCheck:
    """A verdict, and the error that it is to who wants to run with this file (None: it is fit)."""

    report: KeyReport
    error: ConfigError | None


def check_keys(file: Mm2File) -> Iterator[KeyCheck]:
    """Yield a judgement for every key of *file*, in the file's order."""
    known = file.without_unlisted_flows()
    for key, full_key in file.written.items():
        ruling, error = _check_key(known, key)
        shown = redact(key, full_key, ruling.status)
        yield KeyCheck(KeyReport(redact_key(key), shown, ruling.status, ruling.note), error)


def _check_key(file: Mm2File, key: str) -> tuple[KeyResult, ConfigError | None]:
    try:
        if key in file.failures:
            raise file.failures[key]
        scoped_key = file.scoped_key(key)
        ruling = _key_result(file, scoped_key, file.values[key])
    except UnknownAliasError as error:
        return KeyResult(KeyStatus.UNKNOWN, f"{error}. {error.hint}"), error
    except ConfigError as error:
        return KeyResult(KeyStatus.REFUSED, str(error)), error
    if ruling is None:
        unknown = UnknownKeyError(redact_key(key), _nearest(file, key, scoped_key))
        return KeyResult(KeyStatus.UNKNOWN, unknown.hint), unknown
    if ruling.status is KeyStatus.REFUSED:
        return ruling, RefusedKeyError(key, ruling.note)
    return ruling, None


def _key_result(file: Mm2File, scoped_key: ScopedKey, value: str) -> KeyResult | None:
    """Return what becomes of the key at *scoped_key*. None: nobody knows it."""
    key = KEYS.get(scoped_key.key)
    if key is not None and scoped_key.scope in key.scopes:
        return _table_key_result(file, scoped_key, key, value)
    return (
        _family_key_result(scoped_key, value)
        or _client_key_result(file, scoped_key)
        or worker_key_result(scoped_key.key)
        or _misplaced_key_result(scoped_key, key)
    )


def _table_key_result(file: Mm2File, scoped_key: ScopedKey, key: Key, value: str) -> KeyResult:
    """Rule a key of the table. Raises InvalidPatternError."""
    if key.kind is Kind.PATTERNS and key.status is KeyStatus.HONOURED:
        NameFilter(split_list(value))
    if scoped_key.alias and key.name == "bootstrap.servers":
        return translate_settings("admin", file.client(scoped_key.alias, "admin")).results[key.name]
    why = find_contradiction(file, scoped_key)
    return KeyResult(KeyStatus.REFUSED, why) if why else key.check_value(value)


def _family_key_result(scoped_key: ScopedKey, value: str) -> KeyResult | None:
    """Rule keys that the file makes up the middle of: transforms, predicates, providers."""
    name = scoped_key.key
    if name.startswith(("transforms.", "predicates.")):
        return KeyResult(KeyStatus.REFUSED, NO_SMT)
    if scoped_key.scope == "T" and name.startswith("config.providers."):
        if name.endswith(".class") and provider_of(value) is None:
            why = "only Kafka's own EnvVar-, File- and DirectoryConfigProvider are known here"
            return KeyResult(KeyStatus.REFUSED, why)
        return KeyResult(KeyStatus.HONOURED, "A config provider.")
    return None


def _client_key_result(file: Mm2File, scoped_key: ScopedKey) -> KeyResult | None:
    """Rule a Java client property, with all that the same client is told elsewhere in mind."""
    if is_connection_key(scoped_key.key):
        return _connection_key_result(file, scoped_key)
    if scoped_key.flow is not None:
        return _flow_client_key_result(file, scoped_key)
    role, dot, name = scoped_key.key.partition(".")
    if not dot or role not in ROLES:
        return None
    if scoped_key.alias is not None:
        return translate_settings(role, file.client(scoped_key.alias, role)).results.get(name)
    if name not in client_names(role):
        return None
    note = f"Not read at this place (MirrorMaker 2 neither): write it as alias.{scoped_key.key}."
    return KeyResult(KeyStatus.NO_EFFECT, note)


def _connection_key_result(file: Mm2File, scoped_key: ScopedKey) -> KeyResult | None:
    if scoped_key.flow is not None:
        alone = translate_settings("admin", {scoped_key.key: file.values[scoped_key.full_key]})
        return (
            KeyResult(KeyStatus.NO_EFFECT, PER_CLUSTER) if scoped_key.key in alone.results else None
        )
    alias = scoped_key.alias or file.aliases[0]
    return translate_settings("admin", file.client(alias, "admin")).results.get(scoped_key.key)


def _flow_client_key_result(file: Mm2File, scoped_key: ScopedKey) -> KeyResult | None:
    for prefix, (role, why_not) in FLOW_CLIENTS.items():
        if not scoped_key.key.startswith(prefix) or scoped_key.flow is None:
            continue
        name = scoped_key.key.removeprefix(prefix)
        if why_not is PER_CLUSTER and name == "bootstrap.servers":
            return KeyResult(KeyStatus.REFUSED, OTHER_BROKERS)
        if why_not:
            return KeyResult(KeyStatus.NO_EFFECT, why_not) if name in client_names(role) else None
        java = (
            file.data_producer(scoped_key.flow)
            if role == "producer"
            else file.client(scoped_key.flow.source, role, scoped_key.flow)
        )
        return translate_settings(role, java).results.get(name)
    return None


def _misplaced_key_result(scoped_key: ScopedKey, key: Key | None) -> KeyResult | None:
    """Rule what is read at other places only: say at which. None: it is read at none."""
    name, alias = scoped_key.key, scoped_key.alias or "alias"
    flow_clients = (name.removeprefix(prefix) for prefix in FLOW_CLIENTS if name.startswith(prefix))
    if key is not None:
        where = [SCOPE_NAMES[scope].format(name) for scope in key.scopes]
    elif any(bare in client_names(role) for bare in flow_clients for role in ROLES):
        where = [f"as A->B.{name}"]
    else:
        where = [f"as {alias}.{role}.{name}" for role in ROLES if name in client_names(role)]
    note = f"Not read at this place (MirrorMaker 2 neither): write it {' or '.join(where)}."
    return KeyResult(KeyStatus.NO_EFFECT, note) if where else None


def _nearest(file: Mm2File, key: str, scoped_key: ScopedKey) -> str | None:
    """Return the known key that is most like *key*, written as the file would have it."""
    prefix = key[: len(key) - len(scoped_key.key)]
    names = {prefix + name for name, known in KEYS.items() if scoped_key.scope in known.scopes}
    for role in ROLES:
        before = [f"{role}."] if scoped_key.alias else []
        if scoped_key.flow is not None:
            before = [p for p, (r, why_not) in FLOW_CLIENTS.items() if r == role and not why_not]
        names |= {f"{prefix}{p}{name}" for p in before for name in client_names(role)}
    names |= {prefix + name for name in client_names("admin") if is_connection_key(name)}
    names |= {prefix + name for name in worker_names() if not name.endswith("*")}
    if scoped_key.scope == "T":
        names |= {f"{alias}.bootstrap.servers" for alias in file.aliases}
    return next(iter(difflib.get_close_matches(key, sorted(names), n=1, cutoff=0.7)), None)


OFFSET_SYNCS_ENABLED = "emit.offset-syncs.enabled"
# Of a connector's keys these set the offset syncs up (MirrorConnectorConfig).
OFFSET_SYNCS_PREFIXES = ("offset-syncs-", "offset-syncs.topic.")


def find_contradiction(file: Mm2File, scoped_key: ScopedKey) -> str | None:
    """Return why the key at *scoped_key* cannot stand beside others of *file*. None: it can.

    MirrorSourceConnector refuses `emit.offset-syncs.enabled=false` beside keys that set the syncs
    up (KIP-1031); it knows the word in small letters only and takes `False`. A key at the top level
    is judged for every enabled flow that does not say it itself.
    """
    if scoped_key.key != OFFSET_SYNCS_ENABLED or file.values[scoped_key.full_key] != "false":
        return None
    for flow in file.enabled_flows():
        if scoped_key.flow == flow or (
            scoped_key.scope == "T" and OFFSET_SYNCS_ENABLED not in file.at_flow(flow)
        ):
            for key in _offset_sync_keys(file, flow):
                return f"no offset syncs are written, but {key} sets them up: say one of them"
    return None


def _offset_sync_keys(file: Mm2File, flow: Flow) -> list[str]:
    at_flow = [
        f"{flow.name}.{key}" for key in file.at_flow(flow) if key.startswith(OFFSET_SYNCS_PREFIXES)
    ]
    return at_flow + [key for key in file.top_level() if key.startswith(OFFSET_SYNCS_PREFIXES)]
