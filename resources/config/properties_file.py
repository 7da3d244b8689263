"""Read Java's .properties format, with the line of every key."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import javaproperties

from schemas.errors import ConfigFileError

# Java reads a properties *file* as this, and so does MirrorMaker 2: other characters are \uXXXX.
ENCODING = "iso-8859-1"


class LogEntry(NamedTuple):
    """The value of a key, and the first line of the entry that holds it."""

    value: str
    line: int


def read(path: Path) -> dict[str, LogEntry]:
    """Return the entries of the file *path*. Raises ConfigFileError if it cannot be read."""
    try:
        return parse(path.read_bytes().decode(ENCODING))
    except OSError as failure:
        raise ConfigFileError(path, reason=failure.strerror or str(failure)) from None
    except ValueError as failure:
        raise ConfigFileError(path, reason=str(failure)) from None


def parse(text: str) -> dict[str, LogEntry]:
    r"""Return the entries of *text* in the order of their first mention; the last value wins.

    Raises ValueError, with the line, for a `\u` without four hexadecimal digits.
    """
    entries: dict[str, LogEntry] = {}
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                entries[_printable(element.key)] = LogEntry(_printable(element.value), line)
            source = element.source.replace("\r\n", "\n")
            line += source.count("\n") + source.count("\r")
    except javaproperties.InvalidUEscapeError:
        raise ValueError(f"line {line}: \\u needs four hexadecimal digits") from None
    return entries


def _printable(text: str) -> str:
    """Return *text* without half surrogate pairs, which nothing can print or encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
