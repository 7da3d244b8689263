"""Errors of a source partition."""

from __future__ import annotations

from schemas.errors.base import DeltamirrorError, PartitionError


class TopicMissingError(DeltamirrorError):
    """The requested topic or partition does not exist."""

    message = "there is no topic {topic} {location}"
    hint = "Run `deltamirror status` to list the topics that are mirrored."


class RecordsExpiredError(PartitionError):
    """The source deleted records before they were staged."""

    message = "{partition}: records [{wanted}, {low}) expired on the source before they were staged"
    hint = "Run `deltamirror accept-gap` to record the missing interval and continue after it."
    low: int


class LogTruncatedError(PartitionError):
    """The source's log was truncated below the staged end."""

    message = (
        "{partition}: staged up to {staged}, but the source's log was cut: {gone}it ends at {end}"
    )
    hint = (
        "Staged records are no longer on the source. Run `deltamirror accept-gap` to continue with "
        "the source's present records, as a new incarnation."
    )

    def __init__(self, partition: object, *, staged: int, end: int, cut: int | None = None) -> None:
        """Name the lost range `[cut, staged)`; without the broker's *cut*, *end* bounds it."""
        cut = min(end, staged) if cut is None else cut
        gone = f"records [{cut}, {staged}) are gone, " if cut < staged else ""
        super().__init__(partition, staged=staged, gone=gone, end=end)


class TopicRecreatedError(PartitionError):
    """A topic was deleted and re-created before all its records were staged."""

    message = (
        "{partition}: the topic was re-created; records [{frontier}, {end}) of its former "
        "incarnation were not staged"
    )
    hint = "Run `deltamirror accept-gap` to record the interval and continue with the new topic."


class TopicDeletedError(PartitionError):
    """A topic or a partition is no longer on the source, and not all its records were staged."""

    message = "{partition} is no longer on the source; records [{frontier}, {end}) were not staged"
    hint = (
        "If it was deleted, run `deltamirror accept-gap` to record the interval. Otherwise allow "
        "deltamirror's user to describe the topic."
    )


class RangeUnfinishedError(PartitionError):
    """A planned range was not read to its end in time."""

    message = "{partition}: read up to {at} of [.., {end}): {reason}"
    hint = "The loop retries. If the error stays, see the broker's log."
    is_transient = True
