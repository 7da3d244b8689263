"""Check every key of a file: how it is used, and the error if it is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace

from resources.config.client_properties import translate_settings
from resources.config.config_providers import provider_of
from resources.config.mm2_properties import Mm2File, ScopedKey
from resources.config.replication_policy import create_policy
from resources.config.security import NO_SERVERS
from schemas.config.client_keys import ROLES, client_names, is_connection_key
from schemas.config.flow import Flow
from schemas.config.flow_keys import KEYS
from schemas.config.keys import Key, KeyCheck, KeyStatus, Kind, redact, redact_key, split_list
from schemas.config.worker_keys import worker_check, worker_names
from schemas.errors.base import ConfigError
from schemas.errors.configuration import (
    InvalidKeysError,
    RefusedKeyError,
    UnknownAliasError,
    UnknownKeyError,
)
from schemas.mm2.name_filter import NameFilter

NO_SMT = KEYS["transforms"].refusal
# The client of `A->B.<prefix><client property>`, and the reason if it has no effect.
SYNCS_PRODUCER = (
    "MirrorMaker 2 uses this only for its offset-syncs producer. A->B.producer.override.* is for "
    "the producer of records."
)
PER_CLUSTER = "One client serves all flows of a cluster: set it at the cluster's alias."
OTHER_BROKERS = "a flow connects its two clusters: define an alias for other brokers"
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


def check_keys(file: Mm2File) -> list[KeyCheck]:
    """Return the check of every key of *file*, in the file's order."""
    return [check_key(file, key) for key in file.written]


def check_key(file: Mm2File, key: str) -> KeyCheck:
    """Return the check of *key*, with its masked value and its error."""
    error: ConfigError | None = None
    try:
        if key in file.failures:
            raise file.failures[key]
        scoped_key = file.scoped_key(key)
        found = _check(file, scoped_key, file.values[key])
        if found is None:
            raise _unknown_key_error(file, key, scoped_key)
        status, note = found.status, found.note
        if status is KeyStatus.REFUSED:
            error = RefusedKeyError(key, reason=note)
    except UnknownKeyError as failure:
        status, note, error = KeyStatus.UNKNOWN, failure.hint, failure
    except UnknownAliasError as failure:
        status, note, error = KeyStatus.UNKNOWN, f"{failure}. {failure.hint}", failure
    except ConfigError as failure:
        status, note, error = KeyStatus.REFUSED, str(failure), failure
    shown = redact(key, file.written[key], status)
    return KeyCheck(redact_key(key), status, note, shown, error)


def reject_bad_keys(file: Mm2File) -> None:
    """Raise a ConfigError with all wrong or missing keys of *file* and their lines.

    A single error keeps its type. Several become one InvalidKeysError.
    """
    bad: list[tuple[str, ConfigError]] = []
    for line, check in zip(file.lines.values(), check_keys(file), strict=True):
        if check.error is not None:
            text = str(check.error)
            named = text if text.startswith(check.key) else f"{check.key}: {text}"
            bad.append((f"line {line}: {named}", check.error))
    bad += [(str(error), error) for error in _missing(file)]
    if len(bad) > 1:
        texts = [f"{t} ({e.hint})" if isinstance(e, UnknownKeyError) else t for t, e in bad]
        raise InvalidKeysError(file.path, count=len(bad), errors="; ".join(texts))
    for text, error in bad:
        error.args = (f"{file.path}: {text}",)
        raise error


def _missing(file: Mm2File) -> Iterator[RefusedKeyError]:
    """Yield an error for each required key that is missing in the file."""
    for alias in filter(None, file.aliases):
        java = file.client(alias, "admin")
        if "bootstrap.servers" not in java:
            yield RefusedKeyError(f"{alias}.bootstrap.servers", reason=NO_SERVERS)
        for check in translate_settings("admin", java).checks.values():
            if check.status is KeyStatus.REFUSED and check.key not in java:
                yield RefusedKeyError(f"{alias}.{check.key}", reason=check.note)


def _check(file: Mm2File, scoped_key: ScopedKey, value: str) -> KeyCheck | None:
    """Return the check of the key at *scoped_key*; None if the key is unknown."""
    key = KEYS.get(scoped_key.key)
    if key is not None and scoped_key.scope in key.scopes:
        return _table_check(file, scoped_key, key, value)
    return (
        _family_check(scoped_key, value)
        or _client_check(file, scoped_key, value)
        or worker_check(scoped_key.key)
        or _misplaced_key_result(scoped_key, key)
    )


def _table_check(file: Mm2File, scoped_key: ScopedKey, key: Key, value: str) -> KeyCheck:
    """Check a key that KEYS declares. Raises InvalidPatternError."""
    if key.kind is Kind.PATTERNS and key.status is KeyStatus.HONOURED:
        NameFilter(split_list(value))
    if scoped_key.alias and key.name == "bootstrap.servers":
        return translate_settings("admin", file.client(scoped_key.alias, "admin")).checks[key.name]
    why = find_contradiction(file, scoped_key, value)
    check = key.check(value)
    if key.name == "replication.policy.class" and check.status is KeyStatus.HONOURED:
        flow = scoped_key.flow or Flow(file.aliases[0], file.aliases[-1])
        try:
            create_policy(value.strip(), flow, ".", ".")
        except RefusedKeyError as failure:
            why = str(failure).partition(": ")[2]
    return replace(check, status=KeyStatus.REFUSED, note=why) if why else check


def _family_check(scoped_key: ScopedKey, value: str) -> KeyCheck | None:
    """Check keys with a user-defined name inside: transforms, predicates, config providers."""
    name = scoped_key.key
    if name.startswith(("transforms.", "predicates.")):
        return KeyCheck(name, KeyStatus.REFUSED, NO_SMT)
    if scoped_key.scope == "T" and name.startswith("config.providers."):
        if name.endswith(".class") and provider_of(value) is None:
            why = "only Kafka's EnvVar-, File- and DirectoryConfigProvider are supported"
            return KeyCheck(name, KeyStatus.REFUSED, why)
        return KeyCheck(name, KeyStatus.HONOURED, "A config provider.")
    return None


def _client_check(file: Mm2File, scoped_key: ScopedKey, value: str) -> KeyCheck | None:
    """Check a Java client property together with all other properties of the same client."""
    if is_connection_key(scoped_key.key):
        return _connection_check(file, scoped_key, value)
    if scoped_key.flow is not None:
        return _flow_client_check(file, scoped_key.key, scoped_key.flow)
    role, dot, name = scoped_key.key.partition(".")
    if not dot or role not in ROLES:
        return None
    if scoped_key.alias is not None:
        return translate_settings(role, file.client(scoped_key.alias, role)).checks.get(name)
    if name not in client_names(role):
        return None
    note = f"Not read here, nor by MirrorMaker 2: write it as alias.{scoped_key.key}."
    return KeyCheck(scoped_key.key, KeyStatus.NO_EFFECT, note)


def _connection_check(file: Mm2File, scoped_key: ScopedKey, value: str) -> KeyCheck | None:
    if scoped_key.flow is not None:
        alone = translate_settings("admin", {scoped_key.key: value})
        if scoped_key.key not in alone.checks:
            return None
        return KeyCheck(scoped_key.key, KeyStatus.NO_EFFECT, PER_CLUSTER)
    alias = scoped_key.alias or file.aliases[0]
    return translate_settings("admin", file.client(alias, "admin")).checks.get(scoped_key.key)


def _flow_client_check(file: Mm2File, key: str, flow: Flow) -> KeyCheck | None:
    prefix = next((prefix for prefix in FLOW_CLIENTS if key.startswith(prefix)), None)
    if prefix is None:
        return None
    name, (role, why_not) = key.removeprefix(prefix), FLOW_CLIENTS[prefix]
    if why_not is PER_CLUSTER and name == "bootstrap.servers":
        return KeyCheck(key, KeyStatus.REFUSED, OTHER_BROKERS)
    if why_not:
        is_known = name in client_names(role)
        return KeyCheck(key, KeyStatus.NO_EFFECT, why_not) if is_known else None
    is_producer = role == "producer"
    java = file.data_producer(flow) if is_producer else file.client(flow.source, role, flow)
    return translate_settings(role, java).checks.get(name)


def _misplaced_key_result(scoped_key: ScopedKey, key: Key | None) -> KeyCheck | None:
    """Return a check that names the scopes where the key is read; None if it is read nowhere."""
    name, alias = scoped_key.key, scoped_key.alias or "alias"
    flow_clients = (name.removeprefix(prefix) for prefix in FLOW_CLIENTS if name.startswith(prefix))
    if key is not None:
        where = [SCOPE_NAMES[scope].format(name) for scope in key.scopes]
    elif any(bare in client_names(role) for bare in flow_clients for role in ROLES):
        where = [f"as A->B.{name}"]
    else:
        where = [f"as {alias}.{role}.{name}" for role in ROLES if name in client_names(role)]
    note = f"Not read here, nor by MirrorMaker 2: write it {' or '.join(where)}."
    return KeyCheck(scoped_key.key, KeyStatus.NO_EFFECT, note) if where else None


def _unknown_key_error(file: Mm2File, key: str, scoped_key: ScopedKey) -> ConfigError:
    """Return the error of an unknown *key*, or of a key whose cluster is not listed."""
    dots = [at for at, letter in enumerate(key) if letter == "."] if scoped_key.scope == "T" else []
    for at in dots:
        if _is_cluster_key(key[at + 1 :]):
            hint = f"Add {key[:at]} to `clusters`, or correct the name."
            known = ", ".join(file.aliases)
            return UnknownAliasError(key, alias=key[:at], known=known, hint=hint)
    nearest = _nearest(file, key, scoped_key)
    hint = f"Did you mean {nearest}?" if nearest else UnknownKeyError.hint
    return UnknownKeyError(redact_key(key), hint=hint)


def _is_cluster_key(name: str) -> bool:
    role, _, rest = name.partition(".")
    is_client_key = role in ROLES and rest in client_names(role)
    return is_client_key or (is_connection_key(name) and name in client_names("admin"))


def _nearest(file: Mm2File, key: str, scoped_key: ScopedKey) -> str | None:
    """Return the supported key most similar to *key*, with its prefix; None if there is none."""
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
# The keys of a connector that configure offset syncs (MirrorConnectorConfig).
OFFSET_SYNCS_PREFIXES = ("offset-syncs-", "offset-syncs.topic.")


def find_contradiction(file: Mm2File, scoped_key: ScopedKey, value: str) -> str | None:
    """Return why the key at *scoped_key* contradicts another key of *file*, or None.

    MirrorSourceConnector refuses `emit.offset-syncs.enabled=false` (but accepts `False`) together
    with keys that configure the syncs (KIP-1031).
    """
    if scoped_key.key != OFFSET_SYNCS_ENABLED or value != "false":
        return None
    for flow in file.enabled_flows():
        own = file.at_flow(flow)
        if scoped_key.flow == flow or (scoped_key.scope == "T" and OFFSET_SYNCS_ENABLED not in own):
            keys = [f"{flow.name}.{key}" for key in own if key.startswith(OFFSET_SYNCS_PREFIXES)]
            keys += [key for key in file.top_level() if key.startswith(OFFSET_SYNCS_PREFIXES)]
            if keys:
                why = f"no offset syncs are written, but {keys[0]} configures them"
                return f"{why}: remove one of both"
    return None
