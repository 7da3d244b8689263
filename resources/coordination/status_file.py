"""Write and read the status file of each role, which `status` shows.

    <lake>/bulletins/replay_us-east__eu-west.json   {pid, at_ms, state, error, troubles, metrics}

Status files are information only: if one is lost, no record is lost.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

# An unchanged status is written again this often: its `at_ms` shows that the process runs.
REWRITE_INTERVAL_MS = 1000


class StatusFile:
    """The status files of the lake at *root*; a role is `stage us-east` or `replay A->B`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._written: dict[str, tuple[int, dict[str, Any]]] = {}

    def post(
        self,
        role: str,
        state: str,
        error: str | None,
        partition_errors: Sequence[Mapping[str, Any]],
        metrics: str | None = None,
    ) -> None:
        """Write the status of *role*; *metrics* is the address of its metrics endpoint, if any.

        The file is replaced atomically. A failure, such as a full disk, is only logged.
        """
        now_ms = int(time.time() * 1000)
        errors = [dict(each) for each in partition_errors]
        status = {"state": state, "error": error, "troubles": errors, "metrics": metrics}
        before_ms, before = self._written.get(role, (0, {}))
        if status == before and abs(now_ms - before_ms) < REWRITE_INTERVAL_MS:
            return
        path = self._path(role)
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({"pid": os.getpid(), "at_ms": now_ms, **status}))
            draft.replace(path)
        except OSError as failure:
            log.warning("the status file of %s cannot be written: %s", role, failure.strerror)
            return
        self._written[role] = (now_ms, status)

    def read(self, role: str) -> dict[str, Any] | None:
        """Return the last status of *role* and whether its process `is_alive`, or None."""
        try:
            status: dict[str, Any] = json.loads(self._path(role).read_text())
        except (OSError, ValueError):
            return None
        return {**status, "is_alive": _is_alive(status["pid"])}

    def _path(self, role: str) -> Path:
        name = role.replace("->", "__").replace(" ", "_")
        return self._root / "bulletins" / f"{name}.json"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # it runs as another user
    return True
