"""Check every key of a file: what becomes of it, and what is wrong with it."""

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
from schemas.config.keys import (
    Key,
    KeyCheck,
    KeyStatus,
    Kind,
    redact,
    redact_key,
    split_list,
)
from schemas.config.worker_keys import worker_check, worker_names
from schemas.errors import (
    ConfigError,
    InvalidKeysError,
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


def check_keys(file: Mm2File) -> list[KeyCheck]:
    """Return what becomes of every key of *file*, in the file's order."""
    known = file.without_unlisted_flows()
    return [check_key(known, key) for key in file.written]


def check_key(file: Mm2File, key: str) -> KeyCheck:
    """Return what becomes of *key*, as it can be shown, and the error that it is."""
    error: ConfigError | None = None
    try:
        if key in file.failures:
            raise file.failures[key]
        scoped_key = file.scoped_key(key)
        found = _check(file, scoped_key, file.values[key])
        if found is None:
            raise _add_unknown(file, key, scoped_key)
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
    """Raise a ConfigError that names every key of *file* that is wrong or missing, with its line.

    A single one raises its own type, several raise InvalidKeysError.
    """
    bad: list[tuple[str, ConfigError]] = []
    for line, check in zip(file.lines.values(), check_keys(file), strict=True):
        if check.error is not None:
            text = str(check.error)
            named = text if text.startswith(check.key) else f"{check.key}: {text}"
            bad.append((f"line {line}: {named}", check.error))
    bad += [(str(error), error) for error in _missing(file)]
    if len(bad) > 1:
        told = [f"{t} ({e.hint})" if isinstance(e, UnknownKeyError) else t for t, e in bad]
        raise InvalidKeysError(file.path, count=len(told), errors="; ".join(told))
    for text, error in bad:
        error.args = (f"{file.path}: {text}",)
        raise error


def _missing(file: Mm2File) -> Iterator[RefusedKeyError]:
    """Yield an error for each key that the file needs and does not have."""
    for alias in filter(None, file.aliases):
        java = file.client(alias, "admin")
        if "bootstrap.servers" not in java:
            yield RefusedKeyError(f"{alias}.bootstrap.servers", reason=NO_SERVERS)
        for check in translate_settings("admin", java).checks.values():
            if check.status is KeyStatus.REFUSED and check.key not in java:
                yield RefusedKeyError(f"{alias}.{check.key}", reason=check.note)


def _check(file: Mm2File, scoped_key: ScopedKey, value: str) -> KeyCheck | None:
    """Return what becomes of the key at *scoped_key*. None: nobody knows it."""
    key = KEYS.get(scoped_key.key)
    if key is not None and scoped_key.scope in key.scopes:
        return _table_check(file, scoped_key, key, value)
    return (
        _family_check(scoped_key, value)
        or _client_check(file, scoped_key)
        or worker_check(scoped_key.key)
        or _misplaced_key_result(scoped_key, key)
    )


def _table_check(file: Mm2File, scoped_key: ScopedKey, key: Key, value: str) -> KeyCheck:
    """Check a key of the table. Raises InvalidPatternError."""
    if key.kind is Kind.PATTERNS and key.status is KeyStatus.HONOURED:
        NameFilter(split_list(value))
    if scoped_key.alias and key.name == "bootstrap.servers":
        return translate_settings("admin", file.client(scoped_key.alias, "admin")).checks[key.name]
    why = find_contradiction(file, scoped_key)
    check = key.check(value)
    if key.name == "replication.policy.class" and check.status is KeyStatus.HONOURED:
        flow = scoped_key.flow or Flow(file.aliases[0], file.aliases[-1])
        try:
            create_policy(value.strip(), flow, ".", ".")
        except RefusedKeyError as failure:
            why = str(failure).partition(": ")[2]
    return replace(check, status=KeyStatus.REFUSED, note=why) if why else check


def _family_check(scoped_key: ScopedKey, value: str) -> KeyCheck | None:
    """Check keys that the file makes up the middle of: transforms, predicates, providers."""
    name = scoped_key.key
    if name.startswith(("transforms.", "predicates.")):
        return KeyCheck(scoped_key.key, KeyStatus.REFUSED, NO_SMT)
    if scoped_key.scope == "T" and name.startswith("config.providers."):
        if name.endswith(".class") and provider_of(value) is None:
            why = "only Kafka's own EnvVar-, File- and DirectoryConfigProvider are known here"
            return KeyCheck(scoped_key.key, KeyStatus.REFUSED, why)
        return KeyCheck(scoped_key.key, KeyStatus.HONOURED, "A config provider.")
    return None


def _client_check(file: Mm2File, scoped_key: ScopedKey) -> KeyCheck | None:
    """Check a Java client property, with all that the same client is told elsewhere in mind."""
    if is_connection_key(scoped_key.key):
        return _connection_check(file, scoped_key)
    if scoped_key.flow is not None:
        return _flow_client_check(file, scoped_key)
    role, dot, name = scoped_key.key.partition(".")
    if not dot or role not in ROLES:
        return None
    if scoped_key.alias is not None:
        return translate_settings(role, file.client(scoped_key.alias, role)).checks.get(name)
    if name not in client_names(role):
        return None
    note = f"Not read at this place (MirrorMaker 2 neither): write it as alias.{scoped_key.key}."
    return KeyCheck(scoped_key.key, KeyStatus.NO_EFFECT, note)


def _connection_check(file: Mm2File, scoped_key: ScopedKey) -> KeyCheck | None:
    if scoped_key.flow is not None:
        alone = translate_settings("admin", {scoped_key.key: file.values[scoped_key.full_key]})
        return (
            KeyCheck(scoped_key.key, KeyStatus.NO_EFFECT, PER_CLUSTER)
            if scoped_key.key in alone.checks
            else None
        )
    alias = scoped_key.alias or file.aliases[0]
    return translate_settings("admin", file.client(alias, "admin")).checks.get(scoped_key.key)


def _flow_client_check(file: Mm2File, scoped_key: ScopedKey) -> KeyCheck | None:
    for prefix, (role, why_not) in FLOW_CLIENTS.items():
        if not scoped_key.key.startswith(prefix) or scoped_key.flow is None:
            continue
        name = scoped_key.key.removeprefix(prefix)
        if why_not is PER_CLUSTER and name == "bootstrap.servers":
            return KeyCheck(scoped_key.key, KeyStatus.REFUSED, OTHER_BROKERS)
        if why_not:
            return (
                KeyCheck(scoped_key.key, KeyStatus.NO_EFFECT, why_not)
                if name in client_names(role)
                else None
            )
        java = (
            file.data_producer(scoped_key.flow)
            if role == "producer"
            else file.client(scoped_key.flow.source, role, scoped_key.flow)
        )
        return translate_settings(role, java).checks.get(name)
    return None


def _misplaced_key_result(scoped_key: ScopedKey, key: Key | None) -> KeyCheck | None:
    """Check what is read at other places only: say at which. None: it is read at none."""
    name, alias = scoped_key.key, scoped_key.alias or "alias"
    flow_clients = (name.removeprefix(prefix) for prefix in FLOW_CLIENTS if name.startswith(prefix))
    if key is not None:
        where = [SCOPE_NAMES[scope].format(name) for scope in key.scopes]
    elif any(bare in client_names(role) for bare in flow_clients for role in ROLES):
        where = [f"as A->B.{name}"]
    else:
        where = [f"as {alias}.{role}.{name}" for role in ROLES if name in client_names(role)]
    note = f"Not read at this place (MirrorMaker 2 neither): write it {' or '.join(where)}."
    return KeyCheck(scoped_key.key, KeyStatus.NO_EFFECT, note) if where else None


def _add_unknown(file: Mm2File, key: str, scoped_key: ScopedKey) -> ConfigError:
    """Return the error that *key* is: a key of an unlisted cluster, or one that nobody reads."""
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
    if role in ROLES and rest in client_names(role):
        return True
    return is_connection_key(name) and name in client_names("admin")


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
