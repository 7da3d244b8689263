"""Parse Java's `sasl.jaas.config`: one login module and its options."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""\s+|"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([=;])|([^\s=;"']+)""", re.DOTALL
)
ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
ESCAPED_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


@dataclass(frozen=True)
class LoginModule:
    """A login module: the last part of its class's name, and its options, which hold secrets."""

    name: str
    options: dict[str, str] = field(repr=False)


def parse(text: str) -> LoginModule:
    """Parse `Class required key="value" ... ;`. Raises ValueError, without any part of *text*."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise ValueError("it must be `LoginModule required key=value ... ;`, with the semicolon")
    (name, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError("`required` must follow the login module")
    if len(rest) % 3 or any(rest[i] != ("=", True) for i in range(1, len(rest), 3)):
        raise ValueError("an option is not of the form key=value, or there is a second module")
    options = {rest[i][0]: rest[i + 2][0] for i in range(0, len(rest), 3)}
    return LoginModule(name.rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return the unescaped words of *text*, each with True if it is a `=` or a `;`."""
    tokens, position = [], 0
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None:
            raise ValueError("a quotation mark is not closed")
        position = found.end()
        double, single, sign, word = found.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            tokens.append((ESCAPE.sub(_character, quoted), False))
        elif sign or word:
            tokens.append((sign or word, bool(sign)))
    return tokens


def _character(found: re.Match[str]) -> str:
    code = found.group(1)
    if code.isdigit():
        return chr(int(code, 8)) if code < "8" else code
    return ESCAPED_CHARACTERS.get(code, code)
