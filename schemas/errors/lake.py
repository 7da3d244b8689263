"""Errors of the lake: its lease, its tables and its data files."""

from __future__ import annotations

from schemas.errors.base import DeltamirrorError, PartitionError


class LeaseHeldError(DeltamirrorError):
    """Another process holds the lease of this role on this lake."""

    message = "{role} is done by another process ({holder})"
    hint = "Stop the other process, or let it run: `deltamirror status` shows its progress."


class LakeError(DeltamirrorError):
    """The lake cannot be read or written."""

    hint = "Check the folder that deltamirror.lake names: its permissions and its free space."


class LakeFormatError(LakeError):
    """The table was created by another version of deltamirror, with another layout of files."""

    message = "{path} has format {found}, but this version of deltamirror needs format {wanted}"
    hint = (
        "Use the version of deltamirror that created it, or move the cluster's folder away: then "
        "the records that the source still holds are staged again."
    )


class StagedFileError(LakeError):
    """A data file of the stage is missing, torn or altered."""

    file: object

    message = "{file} cannot be read: {reason}"
    hint = (
        "None of the file's records were used. Stop the run, then restore the file from a copy of "
        "the lake or run `deltamirror maintain --restage` to read its records from the source."
    )


class CommitsGoneError(LakeError):
    """The Delta log of `records` lacks commits that the segment index names."""

    hint = (
        "Stop the run, then restore the lake from a copy or run `deltamirror maintain --restage` "
        "to read the missing records from the source."
    )


class TableDamagedError(LakeError):
    """A table's Delta log or one of its files cannot be read, or rows are missing."""

    hint = (
        "Restore the table's folder from a copy of the lake. If there is no copy, see "
        'docs/operations.md, "A damaged lake", for how each table is rebuilt.'
    )


class StalePlanError(DeltamirrorError):
    """The lake changed between planning and committing. Nothing was written."""

    hint = "There is nothing to do: the loop plans again."


class StageIncompleteError(PartitionError):
    """The staged segments do not continue without a hole from progress on."""

    message = "{partition}: replay needs records from {wanted} on, but {problem}"
    hint = (
        "Stop the run, then run `deltamirror maintain --restage` to read the missing records from "
        "the source. `deltamirror verify --source --staged` lists them."
    )

    def __init__(
        self, partition: object, *, wanted: int, found: int | None, counted: int | None = None
    ) -> None:
        if counted is not None:
            problem = f"not all of the {counted} records of that segment are in its files"
        elif found is not None:
            problem = f"the next segment begins at {found}"
        else:
            problem = "nothing is staged there"
        super().__init__(partition, wanted=wanted, problem=problem)


class SegmentLostError(PartitionError):
    """Records of a segment are in no file of the stage, and the source does not return them."""

    message = (
        "{partition}: {records} records staged in [{start}, {end}) are in no file of the stage "
        "and cannot be read again: {reason}"
    )
    hint = (
        "Replace the damaged files, in the folder `records/_damaged` or `records` of the cluster, "
        "from a copy of the lake, or start the source if it is down. Then run "
        "`deltamirror maintain --restage` again."
    )


class NothingToReplayError(DeltamirrorError):
    """No staged record is in the requested range."""

    hint = "Run `deltamirror replay --dry-run` without a range to see all staged ranges of a topic."
