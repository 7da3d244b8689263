"""What is wrong with a target partition, its progress or its map."""

from __future__ import annotations

from schemas.errors.base import PartitionError


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

    def __init__(self, partition: object, *, end: int, mapped: int) -> None:
        super().__init__(
            f"{partition}: the target's log ends at {end}, but records up to {mapped} were written"
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

    def __init__(self, partition: object, *, progress: int, staged: int, mapped: int) -> None:
        super().__init__(
            f"{partition}: progress on the target is {progress}, but what is staged ends at "
            f"{staged}; the offset map ends at {mapped}"
        )


class ProgressBehindError(PartitionError):
    """The target's progress is behind what the offset map proves to be written."""

    hint = (
        "The progress group was reset or lost: `deltamirror resume --restart-topic TOPIC` after "
        "re-creating the target topic, or put the group's offset back."
    )

    def __init__(self, partition: object, *, progress: int, mapped: int) -> None:
        super().__init__(
            f"{partition}: progress on the target is {progress}, the offset map ends at {mapped}"
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

    hint = "Change the target topic's configuration (or the record's), then `deltamirror resume`."

    def __init__(self, partition: object, start: int, end: int, why: str) -> None:
        super().__init__(f"{partition}: the target refused a record in [{start}, {end}): {why}")


class PartitionDownError(PartitionError):
    """The target takes nothing for a partition now."""

    hint = "The loop tries again by itself; see to the target's brokers."
    passes = True

    def __init__(self, partition: object, start: int, end: int, why: str) -> None:
        super().__init__(
            f"{partition}: the target does not take records now, of [{start}, {end}): {why}"
        )


class TargetTopicError(PartitionError):
    """A remote topic cannot be made or does not fit."""

    hint = "Make or change the topic on the target by hand, then `deltamirror resume`."
