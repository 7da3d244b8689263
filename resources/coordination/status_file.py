"""What each duty's process last said about itself: a small file that `status` reads.

    <lake>/bulletins/replay_us-east__eu-west.json   {pid, at_ms, state, error, troubles, metrics}

A bulletin informs people and decides nothing: losing one loses no record.
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

# An unchanged bulletin is written again only this often: its time tells that the duty lives.
REWRITE_INTERVAL_MS = 1000


class StatusFile:
    """The bulletins of the lake at *root*; a duty is `stage us-east` or `replay A->B`."""

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
        """Say how *role* is, and where its process serves its *metrics*, if it does.

        The file is replaced in one go. A disk that is full is only logged.
        """
        now_ms = int(time.time() * 1000)
        told = [dict(each) for each in partition_errors]
        said = {"state": state, "error": error, "troubles": told, "metrics": metrics}
        before_ms, before = self._written.get(role, (0, {}))
        if said == before and abs(now_ms - before_ms) < REWRITE_INTERVAL_MS:
            return
        path = self._path(role)
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({"pid": os.getpid(), "at_ms": now_ms, **said}))
            draft.replace(path)
        except OSError as failure:
            log.warning("bulletin of %s is not written: %s", role, failure.strerror)
            return
        self._written[role] = (now_ms, said)

    def read(self, role: str) -> dict[str, Any] | None:
        """Return what *role* said last, `is_alive` added: whether its process is still there.

        None: it never said anything that can be read.
        """
        try:
            said: dict[str, Any] = json.loads(self._path(role).read_text())
        except (OSError, ValueError):
            return None
        return {**said, "is_alive": _is_alive(said["pid"])}

    def _path(self, role: str) -> Path:
        name = role.replace("->", "__").replace(" ", "_")
        return self._root / "bulletins" / f"{name}.json"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is there, and somebody else's
        return True
    return True
