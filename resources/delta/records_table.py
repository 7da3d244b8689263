"""Commit data files to the table `records`, together with the frontiers that they reach."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections import UserDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from resources.delta.file_names import parse_name
from resources.delta.segments_table import SEGMENTS_KEY
from resources.delta.table import LakeTable
from resources.delta.table_maintenance import MAINTENANCE_APP_ID
from resources.delta.transaction_log import AddedFile, LiveFile
from schemas.errors.lake import CommitsGoneError, LakeError, StalePlanError, TableDamagedError
from schemas.kafka.partition import SourcePartition
from schemas.staging.frontier import Frontier
from schemas.staging.segment import FOREIGN_SEQUENCE, RecordsFile, Segment, StagedFile
from schemas.tables import RECORDS

# Prefix of a partition's app id: its txn version is the first offset that retention kept.
RETAINED_PREFIX = "kept/"


class LiveFilesInOrder(UserDict[str, LiveFile]):
    """Live files by path; those that deltamirror wrote also in order of sequence."""

    def __init__(self) -> None:
        super().__init__()
        self._in_order: list[tuple[int, str, int]] = []  # sequence, path and slots

    def __setitem__(self, path: str, file: LiveFile) -> None:
        if path not in self.data and (name := parse_name(path)).sequence != FOREIGN_SEQUENCE:
            insort(self._in_order, (name.sequence, path, name.slots))
        self.data[path] = file

    def __delitem__(self, path: str) -> None:
        del self.data[path]
        name = parse_name(path)
        if name.sequence != FOREIGN_SEQUENCE:
            at = bisect_left(self._in_order, (name.sequence, path, name.slots))
            del self._in_order[at]

    def paths_from(self, slot: int, sequence: int) -> list[str]:
        """Return the paths of the managed files of *slot* from *sequence* on."""
        first = bisect_left(self._in_order, (sequence,))
        return [path for _, path, slots in self._in_order[first:] if slots >> slot & 1]


class RecordsTable(LakeTable):
    """A source cluster's staged log."""

    def __init__(self, path: Path) -> None:
        self._in_order = LiveFilesInOrder()
        super().__init__(path, RECORDS, self._in_order)

    def frontier(self, partition: SourcePartition) -> int | None:
        """Return the next offset of *partition* to stage, or None if it was never staged."""
        return self.txn_version(partition.app_id)

    def stage(
        self,
        files: Sequence[StagedFile],
        segments: Sequence[Segment],
        expected: Mapping[SourcePartition, int | None],
        other_txn_versions: Mapping[str, int] | None = None,
        known_version: int = -1,
    ) -> int:
        """Add *files* and advance the frontier of every segment's partition, in one commit.

        *expected* are the frontiers from which the segments were planned. They are compared with
        the snapshot on which the commit is made, unless its version is *known_version*, whose
        frontiers the caller knows. *other_txn_versions* are set in the same commit.

        Return the version. Raises StalePlanError if another process advanced a frontier, LakeError
        for other failures; nothing was added then, and *files* are deleted, because the disk may be
        full. If the commit reports a failure but did add *files*, it counts as successful.
        """
        ends = {segment.source.app_id: segment.end for segment in segments}
        txn_versions = {**ends, **(other_txn_versions or {})}
        added = [_add_action(file) for file in files]
        metadata = {SEGMENTS_KEY: json.dumps([s.to_dict() for s in segments])}
        try:
            if self.refresh() != known_version:
                self.check_txn_versions({p.app_id: version for p, version in expected.items()})
            else:
                self._check_not_staged([p for p, version in expected.items() if version is None])
            return self.commit(added, txn_versions=txn_versions, metadata=metadata)
        except (StalePlanError, LakeError):
            if self._is_committed(files):
                return self.version
            raise

    def _check_not_staged(self, partitions: Iterable[SourcePartition]) -> None:
        """Raise TableDamagedError if one of *partitions*, new to the segment index, is staged."""
        for partition in partitions:
            if (end := self.frontier(partition)) is not None:
                raise TableDamagedError(
                    f"{self.path.parent}/segments has no segment of {partition}, but it is staged "
                    f"up to {end}"
                )

    def _is_committed(self, files: Sequence[StagedFile]) -> bool:
        """Return whether a commit that reported a failure did add *files*; delete them if not."""
        self.refresh()
        if files and files[0].path in self.live:
            return True
        for file in files:
            with suppress(OSError):
                (self.path / file.path).unlink()
        return False

    def files(self) -> list[RecordsFile]:
        """Return the live files of the snapshot last read, in order of sequence."""
        names = [(parse_name(path), file) for path, file in self.live.items()]
        files = [RecordsFile(f.path, n.slots, n.sequence, f.size_bytes, n.level) for n, f in names]
        return sorted(files, key=lambda file: (file.sequence, file.path))

    def paths_from(self, sequences: Mapping[int, int]) -> dict[int, list[str]]:
        """Return the paths of each slot's managed files from its sequence in *sequences* on."""
        if not self.live:
            return {slot: [] for slot in sequences}
        return {slot: self._in_order.paths_from(slot, at) for slot, at in sequences.items()}

    def check_index(self, sealed: int, frontiers: Iterable[Frontier]) -> None:
        """Compare the txn versions with the segment index: *sealed* versions and its *frontiers*.

        The two can differ, because a commit file that a machine crash left empty is read as a
        commit without actions. Raises CommitsGoneError if commits of this table are missing,
        TableDamagedError if the segment index lacks some.
        """
        if sealed > self.version:
            raise CommitsGoneError(
                f"{self.path} ends at version {self.version}, but {sealed} versions were sealed"
            )
        for frontier in sorted(frontiers, key=lambda frontier: frontier.source):
            source, end = frontier.source, frontier.next_offset
            txn_version = self.frontier(source)
            if txn_version is None or txn_version < end:
                raise CommitsGoneError(
                    f"{self.path}: {source} was staged up to {end}, "
                    f"but the log says {txn_version or 0}"
                )
            if txn_version > end:
                raise TableDamagedError(
                    f"{self.path.parent}/segments has segments of {source} up to {end}, but it is "
                    f"staged up to {txn_version}"
                )

    def replace(self, old: Sequence[RecordsFile], new: Sequence[StagedFile]) -> int:
        """Replace *old* files with *new* files that hold the same records.

        Raises StalePlanError, with nothing changed, if another process maintained the table.
        """
        return self._rewrite(old, [_add_action(file) for file in new], {})

    def drop(self, old: Sequence[RecordsFile], kept: Mapping[SourcePartition, int]) -> int:
        """Remove *old* files with their records. Only retention does this.

        *kept* has, for each partition of these files, the first offset that stays; the same commit
        records it. Raises StalePlanError as `replace` does.
        """
        retained = {f"{RETAINED_PREFIX}{p.app_id}": at for p, at in kept.items()}
        return self._rewrite(old, [], retained)

    def retained_from(self, partition: SourcePartition) -> int | None:
        """Return the first offset of *partition* that retention kept, or None if it kept all."""
        return self.txn_version(f"{RETAINED_PREFIX}{partition.app_id}")

    def _rewrite(
        self, old: Sequence[RecordsFile], new: Sequence[AddedFile], txn_versions: Mapping[str, int]
    ) -> int:
        """Remove *old* files and add *new* ones in one commit. Raises StalePlanError.

        Delta accepts a second removal of a file, so two processes could add its replacement twice.
        So *old* files must be live, and of two concurrent rewrites MAINTENANCE_APP_ID fails one.
        """
        self.refresh()
        gone = {file.path for file in old} - self.live.keys()
        if gone:
            raise StalePlanError(f"{self.path}: {min(gone)} was replaced by another process")
        removed = [self.live[file.path] for file in old]
        turn = {MAINTENANCE_APP_ID: (self.txn_version(MAINTENANCE_APP_ID) or 0) + 1}
        return self.commit(new, removed, txn_versions={**txn_versions, **turn}, data_change=not new)


def _add_action(file: StagedFile) -> AddedFile:
    return AddedFile(LiveFile(file.path, file.size_bytes), file.modified_ms, file.stats_json)
