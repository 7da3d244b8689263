"""How far a target partition is, as the target itself keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The next upstream offset to replay, in which incarnation, into which life of the target.

    Committed to the group `deltamirror.<flow>` in the transaction of the records themselves.
    """

    next_offset: int
    incarnation: str
    target_topic_id: str

    @property
    def metadata(self) -> str:
        """Return what is committed beside the offset: ASCII, under 60 bytes."""
        return f"{self.incarnation} {self.target_topic_id}"

    @classmethod
    def read(cls, next_offset: int, metadata: str) -> Progress | None:
        """Return the progress that a committed offset means; None: it is not one of ours."""
        words = metadata.rstrip("\0").split(" ")
        return cls(next_offset, words[0], words[1]) if len(words) == 2 else None
