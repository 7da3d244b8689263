"""Why what MirrorMaker 2 began cannot be gone on with."""

from __future__ import annotations

from schemas.errors.base import DeltamirrorError, PartitionError


class MirrorMakerRunningError(DeltamirrorError):
    """MirrorMaker 2 still writes to the target."""

    hint = "Stop it (SIGTERM: it notes its offsets last), then import: two writers duplicate."

    def __init__(self, flow: str, group: str, alias: str, state: str) -> None:
        super().__init__(
            f"MirrorMaker 2 still runs {flow}: its group {group} on {alias} is {state}"
        )


class NothingToTakeOverError(DeltamirrorError):
    """MirrorMaker 2 has left nothing that tells how far it was."""

    hint = "`deltamirror run` needs no import: it looks for what is on the target already."

    def __init__(self, flow: str, topic: str, alias: str) -> None:
        super().__init__(
            f"of {flow} there is nothing to take over: no offsets in {topic} on {alias}"
        )


class AlreadyMirroredError(PartitionError):
    """deltamirror has progress of this partition: it is not MirrorMaker 2's any more."""

    hint = "Nothing is to be done: MirrorMaker 2 noted nothing beyond that."

    def __init__(self, partition: object, *, progress: int) -> None:
        super().__init__(f"{partition}: deltamirror mirrors it already, up to offset {progress}")


class TakeoverUnclearError(PartitionError):
    """Progress and offset map do not agree on how far we were before MirrorMaker 2."""

    hint = "`deltamirror maintain --rebuild-map` makes them agree by the target's log; then again."

    def __init__(self, partition: object) -> None:
        super().__init__(f"{partition}: its progress is not where its offset map ends")


class CopiedAheadError(PartitionError):
    """MirrorMaker 2 noted more than the source shows to a reader of committed records."""

    hint = (
        "Behind an open transaction: import once it has ended. Where the source's topic was made "
        "anew since, delete the remote topic, and `deltamirror run` copies it from the beginning."
    )

    def __init__(self, partition: object, *, copied: int, staged: int) -> None:
        super().__init__(
            f"{partition}: MirrorMaker 2 noted offsets below {copied} as copied, but the source "
            f"shows committed ones below {staged} only"
        )


class RemoteTopicMissingError(PartitionError):
    """MirrorMaker 2 noted records as copied to a topic that is not there."""

    hint = "`deltamirror run` makes the topic and copies it from the beginning of the stage."

    def __init__(self, partition: object, alias: str) -> None:
        super().__init__(f"{partition}: it is not on {alias}, though MirrorMaker 2 noted copies")
