"""The description of a key of mm2.properties, and the parsers of values.

The tables of keys are in `flow_keys` (replication), `worker_keys` (keys that only a Connect worker
reads) and `client_keys` (Java client properties). Source: MirrorMaker 2 4.3.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from schemas.errors.base import ConfigError

SECRET_NAME = re.compile(
    r"password|passphrase|secret|token(?!\.endpoint)|jaas|credential|(keystore|ssl|truststore)\.key$"
    r"|keystore\.certificate|private|assertion",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(r"(password|secret|token)\s*=|PRIVATE KEY", re.IGNORECASE)
REFERENCE_ONLY = re.compile(r"\$\{[^}]*\}")
MASK = "********"
MAX_KEY_PART_LENGTH = 40
"""Longer than any part of a key between two dots, and shorter than a line of PEM."""


class KeyStatus(StrEnum):
    """How a key is used."""

    HONOURED = "honoured"
    TRANSLATED = "translated"
    NO_EFFECT = "no-effect"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """The type of a value."""

    STRING = "string"
    LIST = "list"
    PATTERNS = "list of regular expressions"
    BOOLEAN = "boolean"
    SHORT = "short integer"
    INTEGER = "integer"
    LONG = "long integer"


BITS = {Kind.SHORT: 16, Kind.INTEGER: 32, Kind.LONG: 64}
"""The width of a number in Java, which refuses larger ones."""


@dataclass(frozen=True)
class KeyCheck:
    """How a key is used, and why.

    For a key of a file, *value* is redacted, and *error* is the error that `run` raises for it.
    """

    key: str
    status: KeyStatus
    note: str
    value: str = ""
    error: ConfigError | None = None


@dataclass(frozen=True)
class Key:
    """A key of the file.

    *scopes* holds T for the top level, C for `alias.key`, F for `A->B.key`. *note* says what the
    key does, or why it has no effect. *minimum* is the least integer. A value that the regular
    expression *allowed* does not match is refused with the text *refusal*. A list must not have
    an entry twice, unless it *allows_duplicates*.
    """

    name: str
    kind: Kind
    default: str | None
    scopes: str
    status: KeyStatus
    note: str
    minimum: int | None = None
    allowed: str | None = None
    refusal: str = ""
    allows_duplicates: bool = False

    def check(self, value: str) -> KeyCheck:
        try:
            self._read(value)
        except ValueError as failure:
            return KeyCheck(self.name, KeyStatus.REFUSED, str(failure))
        return KeyCheck(self.name, self.status, self.note)

    def _read(self, value: str) -> None:
        if self.kind is Kind.BOOLEAN:
            parse_boolean(value)
        elif self.kind in BITS:
            parse_integer(value, self.minimum, BITS[self.kind])
        elif self.kind in (Kind.LIST, Kind.PATTERNS):
            check_list(value, allows_duplicates=self.allows_duplicates)
        if self.allowed is not None and not re.fullmatch(self.allowed, value.strip()):
            raise ValueError(self.refusal)


def keys_by_name(reasons: Mapping[str, str]) -> dict[str, str]:
    """Return the reason of each key; *reasons* maps a reason to keys, separated by blanks."""
    return {name: reason for reason, names in reasons.items() for name in names.split()}


def split_list(text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated list, without surrounding blanks."""
    return tuple(re.split(r"\s*,\s*", text.strip())) if text.strip() else ()


def check_list(text: str, *, allows_duplicates: bool = False) -> None:
    """Raise ValueError if a list has an empty entry or a duplicate one (KIP-1161)."""
    entries = split_list(text)
    if "" in entries:
        raise ValueError("an entry of the list is empty")
    if len(set(entries)) < len(entries) and not allows_duplicates:
        raise ValueError("an entry of the list is a duplicate")


def parse_boolean(text: str) -> bool:
    """Parse `true` or `false` in upper or lower case. Raises ValueError for any other text."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("it must be true or false")
    return lowered == "true"


def parse_integer(text: str, minimum: int | None = None, bits: int = 64) -> int:
    """Parse an integer. Raises ValueError if it is below *minimum* or needs more than *bits*."""
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        raise ValueError("it must be a whole number")
    number = int(text)
    if minimum is not None and number < minimum:
        raise ValueError(f"it must be at least {minimum}")
    most = 2 ** (bits - 1) - 1
    if not -most - 1 <= number <= most:
        raise ValueError(f"it must be from {-most - 1} to {most}")
    return number


def redact_key(key: str) -> str:
    """Return the key of a file, shortened if it may be a line of a secret.

    In PEM without backslashes each line becomes a key, which is long and has no dot.
    """
    return key if len(key) < MAX_KEY_PART_LENGTH or "." in key else f"{key[:4]}{MASK}"


def redact(key: str, written: str, status: KeyStatus) -> str:
    """Return the value as *written* in the file, masked if it is or may be a secret.

    A reference such as `${env:NAME}` is shown. The value of an unknown key is masked, because the
    key may be a misspelt password.
    """
    if REFERENCE_ONLY.fullmatch(written.strip()):
        return written
    hidden = SECRET_NAME.search(key) or SECRET_VALUE.search(written) or status is KeyStatus.UNKNOWN
    return MASK if hidden and written else written
