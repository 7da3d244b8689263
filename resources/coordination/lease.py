"""Allow one process per role, with a file lock that ends with its process.

The lease prevents two owners of a role. If it fails, txn version checks and transactional ids fence
the second owner: work is repeated, but no record is lost or duplicated.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from schemas.errors.lake import LakeError, LeaseHeldError


class Lease:
    """An OS file lock for *role* on the lake at *root*.

    Child processes do not inherit the descriptor, so neither the JVM nor Spark's workers keep the
    lock when the holder dies.
    """

    def __init__(self, root: Path, role: str) -> None:
        self.role = role
        self._path = root / "leases" / f"{role.replace('->', '__').replace(' ', '_')}.lock"
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lease. Raises LeaseHeldError, or LakeError if its file cannot be created."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LakeError(f"{self._path} cannot be created: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 100, 0).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise LeaseHeldError(self.role, holder=f"process {holder}") from None
        with suppress(OSError):  # the holder's pid is only information; the disk may be full
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        self._file = file

    @property
    def is_held(self) -> bool:
        """Return whether this object holds the lease."""
        return self._file is not None

    def release(self) -> None:
        """Release the lease. Has no effect if it is not held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Lease:
        self.acquire()
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()
