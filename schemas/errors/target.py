"""What is wrong with a target partition, its progress or its map."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.kafka.partition import TopicPartition


class TargetChangedError(PartitionError):
    """The target topic is not the one that was written before."""

    hint = (
        "`deltamirror resume --restart-topic TOPIC`, TOPIC being its source topic, replays it from "
        "the beginning of the stage."
    )

    def __init__(self, partition: object, was: str, now: str) -> None:
        super().__init__(f"{partition}: the target topic was re-created (id {was}, now {now})")


class TargetTruncatedError(PartitionError):
    """The target's log ends before what was written to it: records that were there are gone."""

    hint = (
        "The target's log was cut (an unclean election, or an older copy of its disk): delete the "
        "topic there, then `deltamirror resume --restart-topic TOPIC`, TOPIC being its source "
        "topic, writes all of it anew."
    )

    def __init__(self, partition: object, *, end: int, map_end: int) -> None:
        super().__init__(
            f"{partition}: the target's log ends at {end}, but records up to {map_end} were written"
        )


class ProgressUnknownError(PartitionError):
    """Progress and offset map are gone, and the target's log cannot tell how far replay was."""

    hint = (
        "If the flow never wrote there, `deltamirror resume --restart-topic TOPIC`, TOPIC being "
        "its source topic, begins at the stage's beginning; otherwise delete the topic there first."
    )

    def __init__(self, partition: object, *, low: int, high: int) -> None:
        super().__init__(
            f"{partition}: there is no progress and no offset map, and nothing that is staged is "
            f"among what the target still holds of offsets [0, {high}): [{low}, {high})"
        )


class TargetHeldBackError(PartitionError):
    """An open transaction hides what lies behind it on the target."""

    hint = (
        "A run of deltamirror ends what a dead one left open; of another producer's transaction "
        "`kafka-transactions.sh --bootstrap-server SERVERS find-hanging` tells. Then verify again."
    )

    def __init__(self, partition: object, *, at: int, end: int) -> None:
        super().__init__(
            f"{partition}: an open transaction hides the records in [{at}, {end}); what lies "
            "before was compared"
        )


class ProgressAheadError(PartitionError):
    """The target's progress is beyond what is staged."""

    hint = (
        "If the group was set forward, set it back to where the offset map ends; if the lake is an "
        "older copy, staging catches up from the source: then `deltamirror resume`."
    )

    def __init__(self, partition: object, *, progress: int, staged: int, map_end: int) -> None:
        super().__init__(
            f"{partition}: progress on the target is {progress}, but what is staged ends at "
            f"{staged}; the offset map ends at {map_end}"
        )


class ProgressBehindError(PartitionError):
    """The target's progress is behind what the offset map proves to be written."""

    hint = (
        "The progress group was reset or lost: `deltamirror resume --restart-topic TOPIC` after "
        "re-creating the target topic, or put the group's offset back."
    )

    def __init__(self, partition: object, *, progress: int, map_end: int) -> None:
        super().__init__(
            f"{partition}: progress on the target is {progress}, the offset map ends at {map_end}"
        )


class MapUnpairedError(PartitionError):
    """Records that progress says were replayed are not all found on the target."""

    hint = (
        "The target lost records after they were written (`deltamirror verify --target` shows "
        "which): re-create the topic and `deltamirror resume --restart-topic TOPIC`. Or the "
        "progress group was set forward: set it back to the first of these offsets."
    )

    def __init__(self, partition: object, *, start: int, end: int, found: int, wanted: int) -> None:
        super().__init__(
            f"{partition}: of {wanted} records staged in [{start}, {end}) only {found} are on the "
            "target"
        )


class MapAmbiguousError(PartitionError):
    """Records on the target can be paired with the stage in more than one way."""

    hint = "Another producer writes the same records there; give the flow a topic of its own."

    def __init__(self, partition: object, offset: int) -> None:
        super().__init__(
            f"{partition}: the record at downstream offset {offset} fits, but so does another one"
        )


class MapDiffersError(PartitionError):
    """The offset map says something else than the target's log."""

    hint = (
        "Nothing was written. `deltamirror verify` says whether the records are right; if so, move "
        "the flow's folder offset_map away and run `deltamirror maintain --rebuild-map` again."
    )

    def __init__(self, partition: object, *, records: int, upstream: int, downstream: int) -> None:
        super().__init__(
            f"{partition}: the offset map and the target's log differ in {records} records, the "
            f"first at upstream offset {upstream}, downstream offset {downstream}"
        )


class RecordRefusedError(PartitionError):
    """The target does not take a record."""

    hint = (
        "Change what the reason names (the target topic's configuration, the record, or the "
        "installed confluent-kafka), then `deltamirror resume`."
    )

    def __init__(self, partition: object, start: int, end: int, why: str) -> None:
        super().__init__(f"{partition}: the target refused a record in [{start}, {end}): {why}")


class PartitionDownError(PartitionError):
    """The target takes nothing for a partition now."""

    hint = "The loop tries again by itself; see to the target's brokers."
    is_transient = True

    def __init__(self, partition: object, start: int, end: int, why: str) -> None:
        super().__init__(
            f"{partition}: the target does not take records now, of [{start}, {end}): {why}"
        )


class TargetTopicError(PartitionError):
    """A remote topic cannot be made or does not fit."""

    hint = "Make or change the topic on the target by hand, then `deltamirror resume`."


class BatchRejectedError(DeltamirrorError):
    """A transaction was aborted because the target did not take a record.

    *partitions* are those whose delivery reports say so, with the reason; empty: no report tells.
    *is_transient*: it is not about the record, and later the target may take it.
    """

    hint = "The loop sends the rest again and marks the partition."

    def __init__(
        self, partitions: Mapping[TopicPartition, str], why: str, *, is_transient: bool = False
    ) -> None:
        super().__init__(f"the target refused a transaction: {why}")
        self.partitions = dict(partitions)
        self.why = why
        self.is_transient = is_transient


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


class ReplayTargetError(DeltamirrorError):
    """The topic that a replay would write to is in use."""

    hint = "Name a new one with --target-topic, or leave it out: then the replay makes its own."
