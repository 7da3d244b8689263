"""What is wrong with the lake, or who else is at it."""

from __future__ import annotations

from schemas.errors.base import DeltamirrorError, PartitionError


class LeaseHeldError(DeltamirrorError):
    """Another process does this duty on this lake."""

    hint = "Stop the other one, or let it work: `deltamirror status` shows how far it is."

    def __init__(self, role: str, holder: str) -> None:
        super().__init__(f"{role} is done by another process ({holder})")


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


class NothingToReplayError(DeltamirrorError):
    """Nothing staged is in the range that was asked for."""

    hint = "`deltamirror replay --dry-run` without a range shows all that is staged of a topic."
