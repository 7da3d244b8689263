r"""Java's .properties format: a file's text in, its keys and values out.

`#` and `!` begin a comment, `=`, `:` or white space ends a key, `\` at a line's end continues it,
`\t \n \r \f \uXXXX` are characters, and the last of several equal keys wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import ConfigFileError

# What Java reads a properties *file* as, and so does MirrorMaker 2: other characters are \uXXXX.
ENCODING = "iso-8859-1"

BLANKS = " \t\f"
LINE_END = re.compile(r"\r\n|\r|\n")
# A key ends at the first separator that no backslash protects.
KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(u)|(.)|$)", re.DOTALL)
ESCAPED_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read(path: Path) -> dict[str, str]:
    """Return the keys of the file *path*. Raises ConfigFileError where it cannot be read."""
    try:
        return parse(path.read_bytes().decode(ENCODING))
    except OSError as failure:
        raise ConfigFileError(path, failure.strerror or str(failure)) from None
    except ValueError as failure:
        raise ConfigFileError(path, str(failure)) from None


def parse(text: str) -> dict[str, str]:
    r"""Return keys and values of *text* in the order of their first mention.

    Raises ValueError, with the line, for a `\u` that four hexadecimal digits do not follow.
    """
    entries: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end = _end(KEY, line, 0)
        value_start = _end(SEPARATOR, line, key_end)
        entries[_unescape(line[:key_end], number)] = _unescape(line[value_start:], number)
    return entries


def write(entries: dict[str, str]) -> str:
    """Return *entries* as a text that `parse` (and Java) reads back as they are."""
    return "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in entries.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each entry's first line number and its text, continuations joined."""
    begun: str | None = None
    first = 0
    for number, natural in enumerate(LINE_END.split(text), start=1):
        line = natural.lstrip(BLANKS)
        if begun is None:
            if not line or line[0] in "#!":
                continue
            begun, first = "", number
        if _continues(line):
            begun += line[:-1]
            continue
        yield first, begun + line
        begun = None
    if begun:
        yield first, begun


def _end(pattern: re.Pattern[str], line: str, start: int) -> int:
    found = pattern.match(line, start)
    return found.end() if found else start


def _continues(line: str) -> bool:
    """Return whether *line* ends with an odd number of backslashes: an even one is escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str, line: int) -> str:
    def character(found: re.Match[str]) -> str:
        code, broken, letter = found.groups()
        if broken:
            raise ValueError(f"line {line}: \\u needs four hexadecimal digits")
        if code:
            return chr(int(code, 16))
        return ESCAPED_CHARACTERS.get(letter, letter) if letter else ""

    if "\\" not in text:
        return text
    # Java writes what lies beyond \uFFFF as two surrogates: joined, they are one character.
    plain = ESCAPE.sub(character, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, key: bool = False) -> str:
    blank = True  # a value's leading blanks would be taken for the separator's
    out = []
    for letter in text:
        blank = blank and letter in BLANKS
        out.append(_escaped(letter, protect=key or blank))
    return "".join(out)


def _escaped(letter: str, *, protect: bool) -> str:
    for short, meant in ESCAPED_CHARACTERS.items():
        if letter == meant:
            return f"\\{short}"
    if letter == "\\" or (protect and letter in " =:#!"):
        return f"\\{letter}"
    if " " <= letter <= "~":
        return letter
    data = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[i]:02x}{data[i + 1]:02x}" for i in range(0, len(data), 2))
