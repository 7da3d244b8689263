"""Errors of the import of MirrorMaker 2's positions."""

from schemas.errors.base import DeltamirrorError, PartitionError


class MirrorMakerRunningError(DeltamirrorError):
    """MirrorMaker 2 still writes to the target."""

    message = "MirrorMaker 2 still runs {flow}: its group {group} on {alias} is {state}"
    hint = (
        "Stop it with SIGTERM, so that it commits its last offsets, then import. Two writers "
        "duplicate records."
    )


class NothingToTakeOverError(DeltamirrorError):
    """MirrorMaker 2 has committed no offsets for the flow."""

    message = "there is nothing of {flow} to take over: topic {topic} on {alias} has no offsets"
    hint = "Start `deltamirror run`: it needs no import and finds what is on the target already."


class AlreadyMirroredError(PartitionError):
    """deltamirror has progress for this partition, so MirrorMaker 2's offset is not imported."""

    message = "{partition}: deltamirror mirrors it already, up to offset {progress}"
    hint = "There is nothing to do: MirrorMaker 2 committed no offset above that."


class TakeoverUnclearError(PartitionError):
    """Progress and offset map disagree about what was replayed before MirrorMaker 2 ran."""

    message = "{partition}: its progress is not where its offset map ends"
    hint = "Run `deltamirror maintain --rebuild-map`, which corrects the map, then import again."


class CopiedAheadError(PartitionError):
    """MirrorMaker 2 committed an offset above the source's last stable offset."""

    message = (
        "{partition}: MirrorMaker 2 noted offsets below {copied} as copied, but the source "
        "shows committed ones below {staged} only"
    )
    hint = (
        "If a transaction is open on the source, import after it has ended. If the source topic "
        "was re-created, delete the remote topic; `deltamirror run` then copies all of it."
    )


class RemoteTopicMissingError(PartitionError):
    """MirrorMaker 2 committed offsets for a topic that is not on the target."""

    message = "{partition}: it is not on {alias}, though MirrorMaker 2 noted copies"
    hint = "Start `deltamirror run`: it creates the topic and copies all that is staged."
