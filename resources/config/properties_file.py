"""Read Java's .properties format, with the line of every key."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import javaproperties

from schemas.errors.configuration import ConfigFileError

# The encoding of a properties *file* in Java and MirrorMaker 2; other characters are \uXXXX.
ENCODING = "iso-8859-1"


class PropertyEntry(NamedTuple):
    """The value of a key, and the first line of its entry."""

    value: str
    line: int


def read(path: Path) -> dict[str, PropertyEntry]:
    """Return the entries of the file *path*. Raises ConfigFileError if it cannot be read."""
    try:
        return parse(path.read_bytes().decode(ENCODING))
    except (OSError, ValueError) as failure:
        reason = getattr(failure, "strerror", None) or str(failure)
        raise ConfigFileError(path, reason=reason) from None


def parse(text: str) -> dict[str, PropertyEntry]:
    r"""Return the entries of *text* in the order of their keys' first occurrence.

    The last value of a key counts. Raises ValueError, with the line, for an incomplete `\u`.
    """
    entries: dict[str, PropertyEntry] = {}
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                entries[_printable(element.key)] = PropertyEntry(_printable(element.value), line)
            source = element.source.replace("\r\n", "\n")
            line += source.count("\n") + source.count("\r")
    except javaproperties.InvalidUEscapeError:
        raise ValueError(f"line {line}: \\u needs four hexadecimal digits") from None
    return entries


def _printable(text: str) -> str:
    """Return *text* without unpaired surrogates, which cannot be printed or encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
