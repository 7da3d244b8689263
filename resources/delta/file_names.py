"""Names of the data files of `records`: sequence, slots, level and digest of the file.

    part-<sequence>-<slots>-<level>-<unique>-<digest>.parquet

*slots* has a bit for each slot with records in the file, as four hexadecimal digits. *level* is how
often its records were joined with others. The digest covers the whole file with its footer, so a
reader detects a truncated or altered file before it uses any record. Files that other programs
write have other names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import xxhash

from schemas.staging.segment import FOREIGN_SEQUENCE

READ_SIZE_BYTES = 256 * 2**10  # few enough to stay in the processor's cache until they are hashed
ALL_SLOTS = 0xFFFF
DAMAGED_FOLDER = "_damaged"
"""Folder in that of the table, of damaged files that may hold the only copy of some records."""

_NAME = re.compile(
    rf"(?:{DAMAGED_FOLDER}/)?"
    r"part-(?P<sequence>\d{12})-(?P<slots>[0-9a-f]{4})-(?P<level>\d)-\w+"
    r"-(?P<digest>[0-9a-f]{16})\.parquet"
)


@dataclass(frozen=True, slots=True)
class FileName:
    """What a data file's name says; *digest* is None for a file that another program wrote."""

    sequence: int
    slots: int
    level: int
    digest: str | None


FOREIGN = FileName(FOREIGN_SEQUENCE, ALL_SLOTS, 0, None)
"""The file may hold records of every slot."""


def file_name(sequence: int, slots: int, level: int, unique: str, digest: str) -> str:
    """Return the name of a data file planned for version *sequence* of the table."""
    return f"part-{sequence:012d}-{slots:04x}-{level}-{unique}-{digest}.parquet"


def parse_name(path: str) -> FileName:
    """Return what the name of the data file at *path* says, or FOREIGN."""
    name = _NAME.fullmatch(path)
    if name is None:
        return FOREIGN
    slots, level = int(name["slots"], 16), int(name["level"])
    return FileName(int(name["sequence"]), slots, level, name["digest"])


def file_digest(file: Path) -> str:
    """Return the digest of the content of *file*, 16 hexadecimal digits. Raises OSError."""
    digest, block = xxhash.xxh3_64(), memoryview(bytearray(READ_SIZE_BYTES))
    with file.open("rb", buffering=0) as content:
        while size := content.readinto(block):
            digest.update(block[:size])
    return digest.hexdigest()
