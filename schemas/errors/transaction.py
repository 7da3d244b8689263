"""How a transaction on a target ends without having committed."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.errors.base import DeltamirrorError
from schemas.kafka.partition import TopicPartition


class ChunkRefusedError(DeltamirrorError):
    """A transaction was aborted because the target did not take a record.

    *partitions* are those whose delivery reports say so, with the reason; empty: no report tells.
    *passes*: it is not about the record, and later the target may take it.
    """

    hint = "The loop sends the rest again and marks the partition."

    def __init__(
        self, partitions: Mapping[TopicPartition, str], why: str, *, passes: bool = False
    ) -> None:
        super().__init__(f"the target refused a transaction: {why}")
        self.partitions = dict(partitions)
        self.why = why
        self.passes = passes


class ThrottledError(DeltamirrorError):
    """The target's quota lets a transaction take longer than a transaction may.

    *share* of it, above 0 and below 1, would have fit.
    """

    hint = "The loop sends smaller transactions by itself; a higher quota makes them large again."

    def __init__(self, alias: str, transactional_id: str, share: float) -> None:
        super().__init__(f"cluster {alias} throttles {transactional_id} (a quota of its brokers)")
        self.share = share


class FencedError(DeltamirrorError):
    """Another producer has taken over this slot."""

    hint = "Another deltamirror replays this flow; this one tries again while it holds the lease."

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"{transactional_id} was fenced by a newer producer or timed out")


class CommitUnknownError(DeltamirrorError):
    """The target did not answer: the transaction may or may not be committed."""

    hint = "Nothing to do: the next try reads progress from the target before it sends anything."

    def __init__(self, transactional_id: str, why: str) -> None:
        super().__init__(f"{transactional_id}: the outcome of a transaction is not known ({why})")
