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
        """Parse *name*, such as `A->B`. Raises ValueError if it is no flow's name."""
        found = FLOW_NAME.match(name.strip())
        if found is None:
            raise ValueError(f"{name!r} is not a flow: write source->target")
        return cls(found["source"].strip(), found["target"].strip())

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def key(self) -> str:
        """Return the name for asset keys, tags and paths. Dagster refuses `>` in them."""
        return f"{self.source}__{self.target}"

    @property
    def progress_group(self) -> str:
        """Return the group on the target whose committed offsets are the flow's progress."""
        return f"deltamirror.{self.name}"

    def transactional_id(self, slot: int) -> str:
        """Return the transactional id of *slot*: the same in every run, to fence older ones."""
        return f"deltamirror.{self.name}.{slot}"
