"""Write docs/configuration.md: every key that mm2.properties may hold, from the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from schemas.config.client_keys import (
    CLIENT_KEYS,
    CONNECTION_KEYS,
    NO_EFFECT_CONNECTION_KEYS,
    REFUSED_CONNECTION_KEYS,
    ClientKey,
)
from schemas.config.flow_keys import SECTIONS
from schemas.config.keys import Key, KeyStatus
from schemas.config.worker_keys import PREFIXES, REASONS
from schemas.mm2.differences import DIFFERENCES

INTRODUCTION = """\
# Configuration

deltamirror reads MirrorMaker 2's own file. A file that works with MirrorMaker 2 4.3 works here,
except for the differences below. `deltamirror config check` prints the status of each key:

| status | meaning |
|---|---|
| honoured | it has the same effect as in MirrorMaker 2 |
| translated | it has that effect under another name or in another unit, which the note gives |
| no-effect | deltamirror does not need it, or does not implement it yet; the note has the reason |
| refused | it would change what is replicated, or is invalid: nothing runs until you remove it |
| unknown | no such key exists: nothing runs, and the error names the nearest known key |

The command ends with exit code 2 if a key is refused or unknown. `run` refuses the same keys. Both
report all bad keys at once, with file and line.

## The file

Java's .properties format in full: `=`, `:` or a blank after the key, `#` and `!` for comments, `\\`
at a line's end to continue it, `\\uXXXX`. A backslash in a regular expression is written twice. Of
equal keys the last one wins. The file is read as **ISO-8859-1**, as Java does: write other
characters as `\\uXXXX`.

A key belongs to the **top** level, to a **cluster** (`alias.key`) or to a **flow** (`A->B.key`).
A flow's key overrides the top level's. For the clients of a cluster (`A.consumer.*`,
`A.producer.*`, `A.admin.*`) each of these overrides those before it: the top level's
`security.protocol`, `ssl.*` and `sasl.*`, the cluster's, the client's own.
`A->B.producer.override.*` is for the producer that writes the records of a flow, and overrides
`B.producer.*`. `A.consumer.*` overrides `A->B.consumer.*`, and `A->B.source.consumer.*` overrides
both. A source is read once for all its flows, so these flows must have the same values.

Lists are separated by commas. The entries of topics and groups form one regular expression, which
has to match the whole name. An expression that has another meaning in Python than in Java
(`\\p{..}`, `\\Q..\\E`, nested classes) is refused.

## Secrets

`${env:NAME}`, `${file:path:key}` and `${dir:path:file}` in a value are replaced by the value that
they refer to. They are Kafka's config providers. These three need no declaration; other names for
them do (`config.providers`). A relative path starts at the configuration file's folder. The file of
`${file:..}` is UTF-8. Values from references, and values of password keys, are never logged or
printed.

## Where deltamirror differs
"""


def configuration_page() -> str:
    """Return the whole page."""
    return "\n".join(_parts())


def _parts() -> Iterable[str]:
    yield INTRODUCTION
    differences = ((each.theirs, each.ours, each.why) for each in DIFFERENCES)
    yield markdown_table(("MirrorMaker 2", "deltamirror", "why"), differences)
    columns = ("key", "type", "default", "where", "status", "note")
    for title, keys in SECTIONS.items():
        yield f"## {title}\n"
        yield markdown_table(columns, map(_key_row, keys))
    yield "## How to connect\n"
    yield "At the top level, at a cluster (`A.ssl...`) or at one of its clients.\n"
    connection = {**CONNECTION_KEYS, **NO_EFFECT_CONNECTION_KEYS}
    connection |= {name: f"Refused: {why}." for name, why in REFUSED_CONNECTION_KEYS.items()}
    yield markdown_table(("key", "in librdkafka"), _named_rows(connection))
    yield "## Client properties\n"
    yield "As `A.consumer.*`, `A.producer.*`, `A.admin.*`, or for a flow as described above.\n"
    yield markdown_table(("property", "of", "in librdkafka"), map(_client_row, CLIENT_KEYS))
    yield "## Keys that only a Connect worker reads\n"
    yield f"Status: {KeyStatus.NO_EFFECT.value}, at every level.\n"
    families = {f"{prefix}*": reason for prefix, reason in PREFIXES.items()}
    yield markdown_table(("key", "why"), _named_rows({**REASONS, **families}))


def _key_row(key: Key) -> Sequence[str]:
    names = {"T": "top", "C": "cluster", "F": "flow"}
    where = ", ".join(names[scope] for scope in key.scopes)
    default = f"`{key.default}`" if key.default else "" if key.default is None else "empty"
    note = key.note + (f" Any other value is refused: {key.refusal}." if key.refusal else "")
    return f"`{key.name}`", key.kind.value, default, where, key.status.value, note


def _client_row(key: ClientKey) -> Sequence[str]:
    names = {"C": "consumer", "P": "producer", "A": "admin"}
    of = "all" if len(key.clients) == len(names) else ", ".join(names[c] for c in key.clients)
    return f"`{key.name}`", of, f"`{key.librdkafka}`" if key.librdkafka else key.note


def _named_rows(notes: Mapping[str, str]) -> Iterable[Sequence[str]]:
    return ((f"`{name}`", note) for name, note in notes.items())


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown; a `|` in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)
