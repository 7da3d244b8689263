"""Names of the data files of `records`: the sequence within the slot and the file's digest.

    part-<sequence>-<unique>-<digest>.parquet

The digest covers the whole file with its footer, so a reader detects a truncated or altered file
before it uses any record. Files that other programs write have other names.
"""

from __future__ import annotations

import re
from pathlib import Path

import xxhash

READ_SIZE_BYTES = 256 * 2**10  # few enough to stay in the processor's cache until they are hashed
FOREIGN_SEQUENCE = -1  # of a file that another program wrote
FILE_NAME = re.compile(r"part-(?P<sequence>\d{12})-\w+(?:-(?P<digest>[0-9a-f]{16}))?\.parquet")


def file_name(sequence: int, unique: str, digest: str) -> str:
    """Return the name of a data file planned for version *sequence* of the table."""
    return f"part-{sequence:012d}-{unique}-{digest}.parquet"


def sequence_of(path: str) -> int:
    """Return the sequence in a data file's name; FOREIGN_SEQUENCE if the name has none."""
    name = FILE_NAME.fullmatch(Path(path).name)
    return int(name["sequence"]) if name else FOREIGN_SEQUENCE


def digest_of(path: str) -> str | None:
    """Return the digest in a data file's name, or None if the name has none."""
    name = FILE_NAME.fullmatch(Path(path).name)
    return name["digest"] if name else None


def file_digest(file: Path) -> str:
    """Return the digest of the content of *file*, 16 hexadecimal digits. Raises OSError."""
    digest, block = xxhash.xxh3_64(), memoryview(bytearray(READ_SIZE_BYTES))
    with file.open("rb", buffering=0) as content:
        while size := content.readinto(block):
            digest.update(block[:size])
    return digest.hexdigest()
