"""What mm2.properties may say: every key with its type, default, scopes and what becomes of it.

Source of the keys: MirrorMaker 2 4.3.0. Client properties are in `keys_client`, what only a
Connect worker reads in `keys_worker`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Status(str, Enum):
    """What becomes of a key."""

    HONOURED = "honoured"
    TRANSLATED = "translated"
    NO_EFFECT = "no-effect"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Kind(str, Enum):
    """What a value looks like."""

    STRING = "string"
    LIST = "list"
    BOOLEAN = "boolean"
    INTEGER = "integer"


@dataclass(frozen=True)
class Key:
    """A key of the file.

    *scopes* holds T for the top level, C for `alias.key`, F for `A->B.key`. *note* says what the
    key does here, or why it does nothing. *least* bounds an integer from below.
    """

    name: str
    kind: Kind
    default: str | None
    scopes: str
    status: Status
    note: str
    least: int | None = None


@dataclass(frozen=True)
class KeyVerdict:
    """What becomes of one key of a file; *value* is fit to be shown."""

    key: str
    value: str
    status: Status
    note: str


def split_list(text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated list, without the blanks around them."""
    return tuple(re.split(r"\s*,\s*", text.strip())) if text.strip() else ()


def parse_boolean(text: str) -> bool:
    """Return the truth of `true` or `false` in any case. Raises ValueError for anything else."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("neither true nor false")


def parse_integer(text: str, least: int | None = None) -> int:
    """Return the integer *text*, at least *least*. Raises ValueError for anything else."""
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        raise ValueError("not a whole number")
    number = int(text)
    if least is not None and number < least:
        raise ValueError(f"less than {least}")
    return number


_H, _T, _N = Status.HONOURED, Status.TRANSLATED, Status.NO_EFFECT
_S, _L, _B, _I = Kind.STRING, Kind.LIST, Kind.BOOLEAN, Kind.INTEGER
_NOT_DONE = "not done yet: "

TOPICS_EXCLUDE = r"mm2.*\.internal, .*\.replica, __.*"
GROUPS_EXCLUDE = "console-consumer-.*, connect-.*, __.*"
CONFIG_PROPERTIES_EXCLUDE = (
    r"follower\.replication\.throttled\.replicas, leader\.replication\.throttled\.replicas, "
    r"message\.timestamp\.difference\.max\.ms, message\.timestamp\.type, "
    r"unclean\.leader\.election\.enable, min\.insync\.replicas"
)

KEYS = (
    Key("clusters", _L, None, "T", _H, "The aliases of the clusters; every other key uses them."),
    Key("bootstrap.servers", _L, None, "C", _H, "The cluster's brokers: required for each alias."),
    Key("enabled", _B, "false", "TF", _H, "Replicate this flow."),
    Key("topics", _L, ".*", "TF", _H, "Names or regular expressions of topics to replicate."),
    Key("topics.exclude", _L, TOPICS_EXCLUDE, "TF", _H, "Topics to leave out; wins over topics."),
    Key("groups", _L, ".*", "TF", _H, "Names or regular expressions of consumer groups."),
    Key(
        "groups.exclude", _L, GROUPS_EXCLUDE, "TF", _H,
        "Groups to leave out; our own deltamirror.* groups always are.",
    ),
)  # fmt: skip
BY_NAME = {key.name: key for key in KEYS}
