"""What is wrong with a source partition."""

from __future__ import annotations

from schemas.errors.base import DeltamirrorError, PartitionError


class TopicMissingError(DeltamirrorError):
    """A topic was named that is not there."""

    def __init__(self, topic: str, where: str) -> None:
        super().__init__(f"there is no topic {topic} {where}")

    hint = "`deltamirror status` lists the topics that are mirrored."


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


class RangeUnfinishedError(PartitionError):
    """A planned range was not read to its end in time."""

    hint = "The loop tries again; see the broker's log if it stays."
    is_transient = True

    def __init__(self, partition: object, *, at: int, end: int, why: str) -> None:
        super().__init__(f"{partition}: read up to {at} of [.., {end}): {why}")
