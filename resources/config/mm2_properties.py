"""Read an mm2.properties file with its three scopes: top level, `alias.key` and `A->B.key`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations, starmap
from pathlib import Path

from resources.config import properties_file as properties
from resources.config.config_providers import resolve
from schemas.config.client_keys import is_connection_key
from schemas.config.flow import Flow
from schemas.config.keys import split_list
from schemas.errors.configuration import ConfigFileError, SecretError, UnknownAliasError


@dataclass(frozen=True)
class ScopedKey:
    """A key and its scope: a cluster, a flow or (neither) the top level."""

    key: str
    alias: str | None = None
    flow: Flow | None = None

    @property
    def scope(self) -> str:
        """Return T for the top level, C for a cluster, F for a flow."""
        return "C" if self.alias else "F" if self.flow else "T"


@dataclass(frozen=True)
class Mm2File:
    """The keys of a file: as *written*, and their *values* after references are resolved.

    *lines* holds the line of each key, *failures* the errors of unresolved references by key.
    *written* and *values* hold secrets.
    """

    path: Path
    aliases: tuple[str, ...]
    lines: Mapping[str, int]
    written: Mapping[str, str] = field(repr=False)
    values: Mapping[str, str] = field(repr=False)
    failures: Mapping[str, SecretError] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Mm2File:
        """Return the file at *path*. Raises ConfigFileError."""
        entries = properties.read(path)
        lines = {key: entry.line for key, entry in entries.items()}
        written = {key: entry.value for key, entry in entries.items()}
        values, failures = resolve(written, path.absolute().parent)
        aliases = tuple(dict.fromkeys(split_list(values.get("clusters", ""))))
        if not aliases:
            why = "it has no `clusters`: list the cluster aliases, separated by commas"
            raise ConfigFileError(path, reason=why)
        return cls(path, aliases, lines, written, values, failures)

    def scoped_key(self, key: str) -> ScopedKey:
        """Split *key* by scope. Raises UnknownAliasError for a flow of unlisted clusters."""
        if "->" in key:
            flow, rest = _split_flow(key, self.aliases)
            return ScopedKey(rest, flow=flow)
        # The longest alias wins, so that `a.b` is not read as key `b` of the cluster `a`.
        for alias in sorted(self.aliases, key=len, reverse=True):
            if key.startswith(f"{alias}."):
                return ScopedKey(key[len(alias) + 1 :], alias=alias)
        return ScopedKey(key)

    def top_level(self) -> dict[str, str]:
        """Return the keys at the top level."""
        return self._by_owner.get(None, {})

    def possible_flows(self) -> Iterator[Flow]:
        """Yield a flow for every ordered pair of clusters, enabled or not."""
        return starmap(Flow, permutations(self.aliases, 2))

    def enabled_flows(self) -> list[Flow]:
        """Return the enabled flows.

        A top-level `enabled` applies only to flows that emit heartbeats: MirrorMaker 2 starts a
        flow for `A->B.enabled` or for heartbeats, and only a started flow reads the top level.
        """
        return [flow for flow in self.possible_flows() if self._is_enabled(flow)]

    def at_flow(self, flow: Flow) -> dict[str, str]:
        """Return the keys of *flow*, without the prefix."""
        return self._by_owner.get(flow, {})

    def flow_value(self, flow: Flow, key: str) -> str | None:
        """Return the value of *key* at *flow*, else at the top level, else None."""
        return self.values.get(f"{flow.name}.{key}", self.values.get(key))

    def client(self, alias: str, role: str, flow: Flow | None = None) -> dict[str, str]:
        """Return the Java properties of a client (`consumer`, `producer`, `admin`) of *alias*.

        The order of precedence, lowest first: `A->B.consumer.x` of a *flow* that reads from
        *alias*, top-level security keys, the cluster's security keys, the cluster's keys of this
        client, and `A->B.source.consumer.x` of the *flow*.
        """
        cluster, at_flow = self._by_owner.get(alias, {}), self.at_flow(flow) if flow else {}
        return {
            **_without_prefix(f"{role}.", at_flow),
            **{key: value for key, value in self.top_level().items() if is_connection_key(key)},
            **{key: value for key, value in cluster.items() if is_connection_key(key)},
            **_without_prefix(f"{role}.", cluster),
            **_without_prefix(f"source.{role}.", at_flow),
        }

    def data_producer(self, flow: Flow) -> dict[str, str]:
        """Return the Java properties of the producer that writes the records of *flow*."""
        return {
            **self.client(flow.target, "producer"),
            **_without_prefix("producer.override.", self.at_flow(flow)),
        }

    def _is_enabled(self, flow: Flow) -> bool:
        own = self.values.get(f"{flow.name}.enabled")
        if own is not None:
            return _is_true(own)
        heartbeats = self.flow_value(flow, "emit.heartbeats.enabled") or "true"
        return _is_true(heartbeats) and _is_true(self.values.get("enabled", "false"))

    @cached_property
    def _by_owner(self) -> dict[str | Flow | None, dict[str, str]]:
        found: dict[str | Flow | None, dict[str, str]] = {}
        for key, value in self.values.items():
            with suppress(UnknownAliasError):  # `key_check` refuses the key
                scoped_key = self.scoped_key(key)
                found.setdefault(scoped_key.alias or scoped_key.flow, {})[scoped_key.key] = value
        return found


def _is_true(text: str) -> bool:
    """Return whether *text* is `true`. `key_check` refuses texts other than `true` and `false`."""
    return text.strip().lower() == "true"


def _without_prefix(prefix: str, entries: Mapping[str, str]) -> dict[str, str]:
    return {key[len(prefix) :]: text for key, text in entries.items() if key.startswith(prefix)}


def _split_flow(key: str, aliases: tuple[str, ...]) -> tuple[Flow, str]:
    """Split *key* into its flow and the rest. Raises UnknownAliasError."""
    for source in aliases:
        for target in sorted(aliases, key=len, reverse=True):
            if source != target and key.startswith(f"{source}->{target}."):
                return Flow(source, target), key[len(f"{source}->{target}.") :]
    source, _, rest = key.partition("->")
    target = rest.partition(".")[0]
    unlisted = source if source not in aliases else target
    raise UnknownAliasError(f"flow {source}->{target}", alias=unlisted, known=", ".join(aliases))
