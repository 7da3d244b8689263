"""One direction of replication between two clusters."""

from __future__ import annotations

import re
from dataclasses import dataclass

FLOW_NAME = re.compile(r"^(?P<source>.+?)->(?P<target>.+)$")


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """A source and a target cluster by their aliases, written `us-east->eu-west`."""

    source: str
    target: str

    def __str__(self) -> str:
        return self.name

    @classmethod
    def parse(cls, name: str) -> Flow:
        """Return the flow that *name* (`A->B`) means. Raises ValueError where it is not one."""
        found = FLOW_NAME.match(name.strip())
        if found is None:
            raise ValueError(f"{name!r} is not a flow: write source->target")
        return cls(found["source"].strip(), found["target"].strip())

    @property
    def name(self) -> str:
        """Return the flow as people and mm2.properties write it."""
        return f"{self.source}->{self.target}"

    @property
    def key(self) -> str:
        """Return the flow as asset keys, tags and paths hold it: Dagster refuses `>`."""
        return f"{self.source}__{self.target}"

    @property
    def progress_group(self) -> str:
        """Return the group on the target that keeps progress, in the records' transaction."""
        return f"deltamirror.{self.name}"

    def transactional_id(self, slot: int) -> str:
        """Return the id that fences every older producer of *slot*: no run id, no attempt."""
        return f"deltamirror.{self.name}.{slot}"
