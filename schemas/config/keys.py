"""What mm2.properties may say: how a key is described, and how its value is read.

The tables are `keys_flow` (what is replicated and how), `keys_worker` (what only a Connect worker
reads) and `keys_client` (Java client properties). Source: MirrorMaker 2 4.3.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from schemas.errors import ConfigError

SECRET_NAME = re.compile(
    r"password|passphrase|secret|token(?!\.endpoint)|jaas|credential|(keystore|ssl|truststore)\.key$"
    r"|keystore\.certificate|private|assertion",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(r"(password|secret|token)\s*=|PRIVATE KEY", re.IGNORECASE)
REFERENCE_ONLY = re.compile(r"\$\{[^}]*\}")
MASK = "********"
MAX_KEY_PART_LENGTH = 40
"""Longer than any part of a key that is between two dots, shorter than a line of PEM."""


class KeyStatus(StrEnum):
    """What becomes of a key."""

    HONOURED = "honoured"
    TRANSLATED = "translated"
    NO_EFFECT = "no-effect"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """What a value looks like."""

    STRING = "string"
    LIST = "list"
    PATTERNS = "list of regular expressions"
    BOOLEAN = "boolean"
    SHORT = "short integer"
    INTEGER = "integer"
    LONG = "long integer"


BITS = {Kind.SHORT: 16, Kind.INTEGER: 32, Kind.LONG: 64}
"""How wide a number is in Java: what does not fit is refused there too."""


@dataclass(frozen=True)
class KeyCheck:
    """What becomes of a key, and why.

    For a key of a file *value* is redacted, and *error* is what running with it raises.
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
    key does here, or why it does nothing. *minimum* bounds an integer from below; *allowed* is a
    regular expression, and a value that it does not match is refused with *refusal*. Of a list
    no entry may stand twice, unless it *allows_duplicates*.
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
        """Return what becomes of this key where it holds *value*."""
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


def split_list(text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated list, without the blanks around them."""
    return tuple(re.split(r"\s*,\s*", text.strip())) if text.strip() else ()


def check_list(text: str, *, allows_duplicates: bool = False) -> None:
    """Raise ValueError where a list has an empty entry or one that stands twice (KIP-1161)."""
    entries = split_list(text)
    if "" in entries:
        raise ValueError("an entry of the list is empty")
    if len(set(entries)) < len(entries) and not allows_duplicates:
        raise ValueError("an entry of the list stands there twice")


def parse_boolean(text: str) -> bool:
    """Return the truth of `true` or `false` in any case. Raises ValueError for anything else."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("it must be true or false")


def parse_integer(text: str, minimum: int | None = None, bits: int = 64) -> int:
    """Return the integer *text*, at least *minimum* and of *bits*. Raises ValueError for others."""
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
    """Return a key as it stands in the file, cut where it may be a line of a secret.

    Of PEM without backslashes each line is a key of its own: longer than any, without a dot.
    """
    return key if len(key) < MAX_KEY_PART_LENGTH or "." in key else f"{key[:4]}{MASK}"


def redact(key: str, written: str, status: KeyStatus) -> str:
    """Return a value as it stands in the file, hidden where it is or may be a secret.

    A reference such as `${env:NAME}` is shown. An unknown key may be a misspelt password.
    """
    if REFERENCE_ONLY.fullmatch(written.strip()):
        return written
    hidden = SECRET_NAME.search(key) or SECRET_VALUE.search(written) or status is KeyStatus.UNKNOWN
    return MASK if hidden and written else written
