"""Errors of a target partition, of its progress, its offset map and its transactions."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.kafka.partition import TopicPartition


class TargetChangedError(PartitionError):
    """The target topic was re-created since deltamirror wrote to it."""

    message = "{partition}: the target topic was re-created (id {was}, now {now})"
    hint = (
        "Run `deltamirror resume --restart-topic TOPIC`, where TOPIC is the source topic, to "
        "replay all its staged records."
    )


class TargetTruncatedError(PartitionError):
    """The target's log ends below records that were written to it."""

    message = (
        "{partition}: the target's log ends at {end}, but records up to {map_end} were written"
    )
    hint = (
        "The log was truncated (an unclean election, or an older copy of the disk). Delete the "
        "target topic, then run `deltamirror resume --restart-topic TOPIC`, where TOPIC is the "
        "source topic, to write all of it again."
    )


class ProgressUnknownError(PartitionError):
    """Progress and offset map are lost, and the target's log matches no staged record."""

    message = (
        "{partition}: there is no progress and no offset map, and nothing that is staged is among "
        "what the target still holds of offsets [0, {high}): [{low}, {high})"
    )
    hint = (
        "If the flow has written to the target topic, delete the topic. Then run `deltamirror "
        "resume --restart-topic TOPIC`, where TOPIC is the source topic."
    )


class TargetHeldBackError(PartitionError):
    """An open transaction on the target hides the records after it."""

    message = (
        "{partition}: an open transaction hides the records in [{at}, {end}); the records before "
        "it were compared"
    )
    hint = (
        "Start `deltamirror run` to end transactions that a dead run left open. For another "
        "producer's, use `kafka-transactions.sh --bootstrap-server SERVERS find-hanging`. Then "
        "verify again."
    )


class ProgressAheadError(PartitionError):
    """The target's progress is beyond the staged end."""

    message = (
        "{partition}: progress on the target is {progress}, but what is staged ends at {staged}; "
        "the offset map ends at {map_end}"
    )
    hint = (
        "If the group was set forward, set it back to the end of the offset map. If the lake is an "
        "older copy, wait until staging has caught up. Then run `deltamirror resume`."
    )


class ProgressBehindError(PartitionError):
    """The target's progress is below the end of the offset map, which proves later writes."""

    message = "{partition}: progress on the target is {progress}, the offset map ends at {map_end}"
    hint = (
        "The progress group was reset or lost. Set the group's offset back to its former value, or "
        "re-create the target topic and run `deltamirror resume --restart-topic TOPIC`."
    )


class MapUnpairedError(PartitionError):
    """The target lacks records that were replayed according to progress."""

    message = (
        "{partition}: of {wanted} records staged in [{start}, {end}) only {found} are on the target"
    )
    hint = (
        "If the target lost records after they were written (`deltamirror verify --target` lists "
        "them), re-create the topic and run `deltamirror resume --restart-topic TOPIC`. If the "
        "progress group was set forward, set it back to the first of these offsets."
    )


class MapAmbiguousError(PartitionError):
    """Records on the target can be paired with staged records in more than one way."""

    message = "{partition}: the record at downstream offset {offset} fits, but so does another one"
    hint = "Another producer writes the same records there. Give the flow a topic of its own."


class MapDiffersError(PartitionError):
    """The offset map differs from the target's log."""

    message = (
        "{partition}: the offset map and the target's log differ in {records} records, the first "
        "at upstream offset {upstream}, downstream offset {downstream}"
    )
    hint = (
        "Nothing was written. Run `deltamirror verify`. If it finds no difference, move the flow's "
        "folder offset_map away and run `deltamirror maintain --rebuild-map` again."
    )


class RecordRefusedError(PartitionError):
    """The target refuses a record."""

    message = "{partition}: the target refused a record in [{start}, {end}): {reason}"
    hint = (
        "Change what the reason names (the target topic's configuration, the record, or the "
        "installed confluent-kafka), then run `deltamirror resume`."
    )


class PartitionDownError(PartitionError):
    """The target refuses all records of a partition for now."""

    message = "{partition}: the target does not take records now, of [{start}, {end}): {reason}"
    hint = "The loop retries. Check the target's brokers."
    is_transient = True


class TargetTopicError(PartitionError):
    """A remote topic cannot be created, or its properties do not fit."""

    hint = "Create or change the topic on the target by hand, then run `deltamirror resume`."


class BatchRejectedError(DeltamirrorError):
    """A transaction was aborted because the target refused a record.

    *partitions* are those whose delivery reports carry an error, with its reason. It is empty if
    no report names the record. An error that *is_transient* does not depend on the record.
    """

    message = "the target refused a transaction: {reason}"
    hint = "The loop sends the other partitions again and reports this error for the partition."
    reason: str
    partitions: Mapping[TopicPartition, str]
    is_transient: bool = False


class ThrottledError(DeltamirrorError):
    """A quota of the target slows a transaction beyond its longest duration.

    *share* of the transaction, above 0 and below 1, would have been in time.
    """

    message = "cluster {alias} throttles {transactional_id} (a quota of its brokers)"
    hint = "The loop sends smaller transactions. Raise the quota to make them large again."
    share: float


class FencedError(DeltamirrorError):
    """Another producer has taken over this slot."""

    message = "{transactional_id} was fenced by a newer producer or timed out"
    hint = "Another process replays this flow. This one retries while it holds the lease."


class CommitUnknownError(DeltamirrorError):
    """The target did not answer, so the transaction may be committed or not."""

    message = "{transactional_id}: the outcome of a transaction is not known ({reason})"
    hint = "There is nothing to do: the next try reads progress from the target first."


class ReplayTargetError(DeltamirrorError):
    """The topic that a replay would write to is in use."""

    hint = "Name a new topic with --target-topic, or omit the option to create one."
