"""A disk of a few hundred KiB that really fills up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Give *folder* a disk of its own of *size_bytes*; mounting one takes root."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", folder], check=True
    )
    try:
        yield folder
    finally:
        # Not now if something of the process still holds a file there: once it lets go.
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, leave_bytes: int = 0) -> Path:
    """Fill *disk* but for about *leave_bytes*; return the file to delete for room."""
    filler = disk / "filler"
    free = os.statvfs(disk)
    filler.write_bytes(b"x" * max(0, free.f_bavail * free.f_frsize - leave_bytes))
    return filler
