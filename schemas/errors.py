"""What can go wrong, with numbers and the next thing to do.

Every error a user can meet derives from `DeltamirrorError`: its message is one sentence that says
what and where, `hint` one that says what to do next. `ConfigError` ends a command with exit code 2,
everything else with 1. A `PartitionError` belongs to one partition and never stops another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.topic_partition import TopicPartition


class DeltamirrorError(Exception):
    """Anything that a person should read as one line."""

    hint: str = ""

    @property
    def kind(self) -> str:
        """Return the error's type as JSON and tables show it."""
        return type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        """Come back from a Spark task as it was: Python would make it anew from its message."""
        return _again, (type(self), self.args, self.__dict__)


def _again(
    kind: type[DeltamirrorError], args: tuple[Any, ...], state: Mapping[str, Any]
) -> DeltamirrorError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(DeltamirrorError):
    """What was asked for cannot be meant: exit code 2."""


class UnreachableError(DeltamirrorError):
    """A cluster did not answer."""

    hint = "Check that it runs and that bootstrap.servers names it; the next run goes on from here."

    def __init__(self, alias: str, servers: str, reason: str) -> None:
        super().__init__(f"cluster {alias} ({servers}) does not answer: {reason}")


class LeaseHeldError(DeltamirrorError):
    """Another process does this duty on this lake."""

    hint = "Stop the other one, or let it work: `deltamirror status` shows how far it is."

    def __init__(self, duty: str, holder: str) -> None:
        super().__init__(f"{duty} is done by another process ({holder})")


class LakeError(DeltamirrorError):
    """The lake cannot be read or written."""

    hint = "Check deltamirror.lake: the folder, its rights and its free space."


class StagedFileError(LakeError):
    """A data file of the stage is missing, torn or altered."""

    hint = (
        "None of its records was used. Stop the run and put the file back from a copy of the lake, "
        "or run `deltamirror maintain --restage`: it reads them from the source again."
    )

    def __init__(self, file: object, why: str) -> None:
        super().__init__(f"{file} cannot be read: {why}")


class CommitsGoneError(LakeError):
    """The log of `records` lacks commits that the ledger tells of."""

    hint = (
        "Stop the run and put the lake back from a copy, or run `deltamirror maintain --restage`: "
        "it reads what is missing from the source again."
    )


class TableDamagedError(LakeError):
    """A table's commit log or a file of it cannot be read, or it lacks what it held."""

    hint = (
        "Put the table's folder back from a copy of the lake; docs/operations.md, "
        '"A damaged lake", says for each table how it is made again where there is no copy.'
    )


class StalePlanError(DeltamirrorError):
    """The lake moved between planning and committing; nothing was written."""

    hint = "The loop plans anew by itself."


class TopicMissingError(DeltamirrorError):
    """A topic was named that is not there."""

    def __init__(self, topic: str, where: str) -> None:
        super().__init__(f"there is no topic {topic} {where}")

    hint = "`deltamirror status` lists the topics that are mirrored."


class PartitionError(DeltamirrorError):
    """Something is wrong with one partition; the others go on.

    What *passes* by itself is tried again before long, everything else at the next refresh.
    """

    passes = False


class RecordsExpiredError(PartitionError):
    """Records left the source before they were staged."""

    hint = "They are gone: `deltamirror accept-gap` records what is missing and goes on from there."

    def __init__(self, partition: object, *, wanted: int, low: int) -> None:
        super().__init__(
            f"{partition}: records [{wanted}, {low}) expired on the source before they were staged"
        )
        self.low = low


class LogTruncatedError(PartitionError):
    """The source's log was cut below what was staged."""

    hint = (
        "Staged records are no longer on the source: `deltamirror accept-gap` goes on with what "
        "the source holds now, as a new incarnation."
    )

    def __init__(self, partition: object, *, staged: int, end: int, cut: int | None = None) -> None:
        """Name what is gone: `[cut, staged)` where the broker told *cut*, else what *end* shows."""
        cut = min(end, staged) if cut is None else cut
        gone = f"records [{cut}, {staged}) are gone, " if cut < staged else ""
        super().__init__(
            f"{partition}: staged up to {staged}, but the source's log was cut: {gone}it ends at "
            f"{end}"
        )


class TopicRecreatedError(PartitionError):
    """A topic was deleted and made again before its former life was staged to its end."""

    hint = "`deltamirror accept-gap` records what is missing and goes on with the new topic."

    def __init__(self, partition: object, *, frontier: int, end: int) -> None:
        super().__init__(
            f"{partition}: the topic was re-created; records [{frontier}, {end}) of its former "
            "life were not staged"
        )


class TopicDeletedError(PartitionError):
    """A topic or a partition is no longer on the source, and was not staged to its end."""

    hint = (
        "If it was deleted, `deltamirror accept-gap` records what is missing; otherwise allow "
        "deltamirror's user to describe the topic."
    )

    def __init__(self, partition: object, *, frontier: int, end: int) -> None:
        super().__init__(
            f"{partition} is not on the source any more; records [{frontier}, {end}) were not "
            "staged"
        )


class RecordUnreadableError(PartitionError):
    """A record cannot be carried exactly by the client library."""

    hint = (
        "Install the confluent-kafka that requirements.lock names; or leave the record out, on "
        "record, with `deltamirror accept-gap`."
    )

    def __init__(self, partition: object, offset: int, why: str) -> None:
        super().__init__(f"{partition}: the record at offset {offset} cannot be carried: {why}")
        self.offset = offset


class RangeUnfinishedError(PartitionError):
    """A planned range was not read to its end in time."""

    hint = "The loop tries again; see the broker's log if it stays."
    passes = True

    def __init__(self, partition: object, *, at: int, end: int, why: str) -> None:
        super().__init__(f"{partition}: read up to {at} of [.., {end}): {why}")


class StageIncompleteError(PartitionError):
    """What lies staged is not an unbroken chain from progress on."""

    hint = (
        "Stop the run, then `deltamirror maintain --restage` reads what is missing from the source "
        "again; `deltamirror verify --source --staged` shows what it is."
    )

    def __init__(
        self, partition: object, *, wanted: int, found: int | None, counted: int | None = None
    ) -> None:
        if counted is not None:
            has = f"not all of the {counted} records of that segment are in its files"
        elif found is not None:
            has = f"the next segment begins at {found}"
        else:
            has = "nothing is staged there"
        super().__init__(f"{partition}: replay needs records from {wanted} on, but {has}")


class SegmentLostError(PartitionError):
    """Records of a staged range are in no file of the stage, and cannot be read again."""

    hint = (
        "Nothing of its slot was changed. Put the files back from a copy of the lake, or start "
        "the source if it is down, and run `deltamirror maintain --restage` again."
    )

    def __init__(self, partition: object, *, start: int, end: int, records: int, why: str) -> None:
        super().__init__(
            f"{partition}: {records} records staged in [{start}, {end}) are in no file of the "
            f"stage and cannot be read again: {why}"
        )


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


class SendAgainError(DeltamirrorError):
    """A transaction met a record that another producer has to send; nothing of it is kept."""

    hint = "The loop sends it again by itself."

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"{transactional_id}: a record needs the exact producer")


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


class NothingToTranslateError(DeltamirrorError):
    """Nothing of this partition has arrived, or it is not mirrored."""

    hint = "`deltamirror status` shows what has been replayed."


class DifferencesFoundError(DeltamirrorError):
    """A comparison found records that differ."""

    hint = "`deltamirror verify --format json` names the first ones."


class WorkerDiedError(DeltamirrorError):
    """A process that reads for a comparison is gone."""

    hint = "Somebody or the system, out of memory, ended it: the next `verify` goes on from there."

    def __init__(self) -> None:
        super().__init__("a process that reads for verify has died")


class NotCaughtUpError(DeltamirrorError):
    """A run that was to end when caught up ended with something failed or paused."""

    hint = "`deltamirror status` shows each one's error and what to do."

    def __init__(self, troubles: Sequence[str]) -> None:
        first = troubles[0] if troubles else "nothing moved"
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        super().__init__(f"not caught up: {first}{more}")


class JavaMissingError(DeltamirrorError):
    """No Java, or one that is too old for Spark and Kafka's brokers."""

    hint = "Install a Java runtime, version 17 or newer, and set JAVA_HOME or PATH to it."

    def __init__(self, found: str) -> None:
        super().__init__(f"Java 17 or newer is needed: {found}")


class DownloadFailedError(DeltamirrorError):
    """Jars could not be fetched from the Maven repository."""

    hint = (
        "Check the network and run `make setup` again; a mirror is read from ~/.m2/settings.xml "
        "or the environment variable DEFAULT_ARTIFACT_REPOSITORY."
    )

    def __init__(self, what: str, repository: str, why: str) -> None:
        super().__init__(f"{what} could not be fetched from {repository}: {why}")


class BrokerStartError(DeltamirrorError):
    """A local Kafka broker did not come up."""

    def __init__(self, name: str, log: object, why: str) -> None:
        super().__init__(f"broker {name} did not start: {why}")
        self.hint = f"The whole log is in {log}."


class BrokerStopError(DeltamirrorError):
    """A local Kafka broker is still there after it was ended."""

    hint = "End the process by hand; its data stays as it is."

    def __init__(self, name: str, pid: int, waited_seconds: float) -> None:
        super().__init__(f"broker {name} (pid {pid}) did not end within {waited_seconds:.0f} s")


class ConfigFileError(ConfigError):
    """The configuration file cannot be read."""

    hint = "Name the file with --config or DELTAMIRROR_CONFIG; mm2.properties is an example."

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path}: {why}")


class UnknownKeyError(ConfigError):
    """The file holds a key that nobody reads."""

    def __init__(self, key: str, nearest: str | None) -> None:
        super().__init__(f"{key} is not a key of mm2.properties")
        self.hint = (
            f"Did you mean {nearest}?" if nearest else "docs/configuration.md lists every key."
        )


class RefusedKeyError(ConfigError):
    """The file asks for something that is not done here, or says it in a way that cannot be read.

    The message never holds the value where the key's name says that it is a secret.
    """

    hint = "`deltamirror config check` lists every key of the file with what becomes of it."

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")


class InvalidPatternError(ConfigError):
    """A regular expression that cannot be read."""

    hint = (
        "Java and Python differ in \\p{..}, \\Q..\\E, nested classes and (before Python 3.11) "
        "possessive quantifiers; a comma separates entries and cannot stand inside of one."
    )

    def __init__(self, pattern: str, why: str) -> None:
        super().__init__(f"the regular expression {pattern} cannot be read: {why}")


class UnknownAliasError(ConfigError):
    """A flow is named between clusters that the file does not list."""

    hint = "Add the alias to `clusters` and give it bootstrap.servers, or correct the flow's name."

    def __init__(self, flow: str, alias: str, known: Sequence[str]) -> None:
        super().__init__(f"flow {flow}: no cluster {alias} (clusters: {', '.join(known)})")


class UnknownFlowError(ConfigError):
    """A flow was named that is not enabled."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no enabled flow {name}")
        self.hint = (
            f"Enabled flows: {', '.join(known)}."
            if known
            else f"Write {name}.enabled=true into the configuration file."
        )


class SecretError(ConfigError):
    """A `${provider:path:key}` in the file leads to nothing."""

    hint = "Set the variable or write the file where this process runs; or correct the reference."

    def __init__(self, reference: str, why: str) -> None:
        super().__init__(f"{reference} cannot be resolved: {why}")


class RequestRefusedError(DeltamirrorError):
    """A cluster answered, and said no; *code* is Kafka's name for the reason."""

    hint = "See the broker's log; where rights are missing, grant them to deltamirror's user."

    def __init__(self, alias: str, what: str, code: str, reason: str) -> None:
        super().__init__(f"cluster {alias} refused to {what}: {reason} ({code})")
        self.code = code


class GroupActiveError(DeltamirrorError):
    """Offsets of a consumer group cannot be set while it has members."""

    hint = "Stop the group's consumers on that cluster, then do it again."

    def __init__(self, alias: str, group: str) -> None:
        super().__init__(f"group {group} on cluster {alias} has active members")
