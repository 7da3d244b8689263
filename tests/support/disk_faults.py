"""A small disk that a test can fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a disk of *size_bytes* at *folder*, which needs root."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", folder], check=True
    )
    try:
        yield folder
    finally:
        # Lazy: if this process still has a file open there, the disk is removed after its close.
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, leave_bytes: int = 0) -> Path:
    """Fill *disk* except about *leave_bytes*; return the file whose deletion frees the space."""
    filler = disk / "filler"
    free = os.statvfs(disk)
    filler.write_bytes(b"x" * max(0, free.f_bavail * free.f_frsize - leave_bytes))
    return filler
