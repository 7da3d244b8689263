"""Replay a slot's staged records in transactions on the target; record their downstream offsets.

Replay reads progress after `fence`. No older producer can commit after that, so this progress is
authoritative.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from pipeline.arrays import Offsets
from pipeline.offset_map.encode import encode_runs
from pipeline.replay.recovery import StageReader, TargetLogReader, recover, start_of
from pipeline.replay.segment_chain import SegmentChain
from pipeline.replay.transaction_batch import TransactionBatch
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.errors.target import (
    BatchRejectedError,
    PartitionDownError,
    RecordRefusedError,
    TargetChangedError,
    TargetTruncatedError,
    ThrottledError,
)
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.stats import RecordStats
from schemas.replay.slot_work import (
    CommittedBatch,
    MapEnd,
    PartitionWork,
    Progress,
    SlotReplayResult,
    SlotWork,
)


class Target(TargetLogReader, Protocol):
    """One slot's transactional producer on a target cluster, as replay needs it."""

    def fence(self) -> None:
        """Become the slot's only writer; end the transactions of older writers."""

    def progress(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Progress]:
        """Return the committed progress of each partition that has one, never a pending one."""

    def abort_leftovers(self, partitions: Mapping[TopicPartition, int]) -> None:
        """Abort this slot's older open transactions at or after the given offsets.

        Fencing ends them, but a broker may fail to write a marker. The next commit would then
        make the older records visible together with its own.
        """

    def end_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | PartitionError]:
        """Return the high watermark of each partition, or the error of the request."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the current ids of *topics*, without topics that do not exist."""

    def commit_progress(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Commit *progress* of partitions without any, outside of a transaction (KAFKA-19163)."""

    def begin(self) -> None:
        """Open a transaction."""

    def send(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Append *rows* in order to the open transaction. Raises BatchRejectedError."""

    def flush(self) -> Mapping[TopicPartition, Offsets]:
        """Return the offsets of the records sent. Raises BatchRejectedError, ThrottledError."""

    def commit(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Commit the records sent and *progress* in one transaction.

        Raises FencedError, CommitUnknownError, BatchRejectedError, ThrottledError.
        """

    def abort(self) -> None:
        """Drop the transaction and its producer; the next call must be `fence`."""


def replay_slot(work: SlotWork, staged: StageReader, target: Target) -> SlotReplayResult:
    """Send the records of *work* in transactions; return the committed batches and the errors."""
    slot = _Slot(work, staged, target)
    while True:
        try:
            slot.run()
        except _PartitionExcludedError:
            target.abort()
        except ThrottledError as throttled:
            target.abort()
            if not slot.shrink(throttled):
                return slot.result(throttled)
        except BatchRejectedError as refused:
            target.abort()
            if not slot.exclude(refused):
                return slot.result(refused)
        except DeltamirrorError as error:
            target.abort()
            return slot.result(error)
        else:
            return slot.result(None)


class _PartitionExcludedError(Exception):
    """Raised to abort a transaction because a partition was excluded; the rest is sent again."""


class _Slot:
    """One slot's replay: its excluded partitions, its committed batches and its progress."""

    def __init__(self, work: SlotWork, staged: StageReader, target: Target) -> None:
        self._work, self._staged, self._target = work, staged, target
        self._partitions = {w.target: w for w in work.partitions}
        self._errors: dict[TopicPartition, PartitionError] = {}
        self._committed_batches: list[CommittedBatch] = []
        self._at: dict[TopicPartition, Progress] = {}
        self._is_one_by_one = False
        self._fits_bytes: int | None = None
        self._batch = self._new_batch()

    def result(self, failure: DeltamirrorError | None) -> SlotReplayResult:
        """Return the result; *failure* is the error that stopped the slot, if there was one."""
        errors = [(self._partitions[t].partition, e) for t, e in self._errors.items()]
        batches = tuple(self._committed_batches)
        return SlotReplayResult(self._work.slot, batches, tuple(errors), failure, self._fits_bytes)

    def run(self) -> None:
        """Fence, recover each partition's progress, and send until work or bounds end."""
        self._batch = self._new_batch()
        self._target.fence()
        self._recover()
        chains: dict[TopicPartition, SegmentChain] = {}
        count = partial(self._staged.count, self._work.files)
        for work in self._remaining_work():
            try:
                chains[work.target] = SegmentChain(work, self._at[work.target], count)
            except PartitionError as error:
                self._errors[work.target] = error
        if self._send(chains):
            self._finish(chains)

    def exclude(self, refused: BatchRejectedError) -> bool:
        """Exclude the rejected partitions, or find them one by one; return whether to continue."""
        named = dict(refused.partitions)
        held = self._batch.targets()
        if not named and len(held) == 1:
            named = {held[0]: refused.reason}
        if not named and self._is_one_by_one:
            return False
        self._is_one_by_one = self._is_one_by_one or not named
        for target, why in named.items():
            start, end = self._at[target].next_offset, self._batch.progress[target].next_offset
            kind = PartitionDownError if refused.is_transient else RecordRefusedError
            self._errors[target] = kind(target, start=start, end=end, reason=why)
        return True

    def shrink(self, throttled: ThrottledError) -> bool:
        """Reduce the bytes per transaction to the target's quota; return False if it cannot."""
        if self._batch.records <= 1:
            return False
        self._fits_bytes = max(1, int(self._batch.size_bytes * throttled.share))
        return True

    def _remaining_work(self) -> list[PartitionWork]:
        return [w for w in self._partitions.values() if w.target not in self._errors]

    def _recover(self) -> None:
        """Read progress, compare it with the map, repair the map, commit missing progress."""
        works = self._remaining_work()
        targets = [w.target for w in works]
        known = self._target.progress(targets)
        # If the map has all committed records, open transactions after its end are leftovers.
        mapped = [w for w in works if known.get(w.target) in (None, start_of(w))]
        self._target.abort_leftovers({w.target: _downstream_end(w) for w in mapped})
        end_offsets = self._target.end_offsets(targets)
        seeds: dict[TopicPartition, Progress] = {}
        for work in works:
            found, end = known.get(work.target), end_offsets[work.target]
            try:
                if isinstance(end, PartitionError):
                    raise end
                resume_point = recover(
                    work, self._work.files, found, end, self._staged, self._target
                )
            except PartitionError as error:
                self._errors[work.target] = self._recreation_error(work) or error
                continue
            self._at[work.target] = resume_point.at
            for batch in resume_point.repairs:
                self._record(batch)
            if found is None:
                seeds[work.target] = resume_point.at
        if seeds:
            self._target.commit_progress(seeds)

    def _send(self, chains: Mapping[TopicPartition, SegmentChain]) -> bool:
        """Send rows in transactions; return whether all were sent within the tick's bounds."""
        by_source = {s: t for t, chain in chains.items() for s in chain.starts()}
        wanted = {s: n for chain in chains.values() for s, n in chain.starts().items()}
        records = size_bytes = 0
        for source, batch in self._staged.rows(self._work.files, wanted):
            target = by_source[source]
            if target in self._errors:
                continue
            try:
                rows = chains[target].follow(source, batch)
            except PartitionError as error:
                self._errors[target] = error
                continue
            if self._needs_own_batch(target, source.topic_id):
                self._commit()
            while rows.num_rows:
                topic_id = self._partitions[target].target_topic_id
                taken = self._batch.add(target, rows, source.topic_id, topic_id)
                rows = rows.slice(taken)
                if self._batch.is_full:
                    records += self._batch.records
                    size_bytes += self._batch.size_bytes
                    self._commit()
                    if self._is_tick_full(records, size_bytes):
                        return False
        return True

    def _is_tick_full(self, records: int, size_bytes: int) -> bool:
        """Return whether the tick ends; a throttled slot ends its tick after each transaction."""
        if self._fits_bytes is not None:
            return True
        return records >= self._work.max_records or size_bytes >= self._work.max_bytes

    def _needs_own_batch(self, target: TopicPartition, incarnation: str) -> bool:
        """Return whether rows of *target* need a new transaction."""
        held = self._batch.progress.get(target)
        if held is not None and held.incarnation != incarnation:
            return True
        return self._is_one_by_one and self._batch.targets() not in ([], [target])

    def _finish(self, chains: Mapping[TopicPartition, SegmentChain]) -> None:
        """Commit the remaining rows, and progress to the end of every complete chain."""
        for target, chain in chains.items():
            if target in self._errors:
                continue
            try:
                chain.finish()
            except PartitionError as error:
                self._errors[target] = error
            else:
                if not self._needs_own_batch(target, chain.end.incarnation):
                    self._batch.progress[target] = chain.end
        self._commit()

    def _commit(self) -> None:
        """Send the batch and its progress as one transaction; record what was committed."""
        batch = self._batch
        moved = {t: p for t, p in batch.progress.items() if self._at[t] != p}
        if moved:
            self._target.begin()
            for target, rows in batch.rows:
                self._target.send(target, rows)
            offsets = self._target.flush()
            self._check_targets(moved, offsets)
            self._target.commit(moved)
            stats_by_target = batch.stats_by_target()
            for target, after in moved.items():
                upstream = batch.upstream(target)
                runs = tuple(encode_runs(upstream, offsets[target])) if len(upstream) else ()
                work = self._partitions[target]
                before = work.map_end.progress if work.map_end else None
                load, sent = stats_by_target.get(target, RecordStats()), len(upstream)
                self._record(
                    CommittedBatch(work.partition, target, before, after, runs, sent, load=load)
                )
        self._batch = self._new_batch()

    def _recreation_error(self, work: PartitionWork) -> PartitionError | None:
        """Return an error if the topic was re-created or deleted; it is the cause of any other."""
        now = self._target.topic_ids([work.target.topic]).get(work.target.topic)
        return None if now == work.target_topic_id else _target_changed(work, now)

    def _check_targets(
        self, moved: Collection[TopicPartition], offsets: Mapping[TopicPartition, Offsets]
    ) -> None:
        """Exclude partitions that were re-created or truncated since fencing; raise if any was."""
        # Topic ids are read after all records are written: an old topic id never comes back.
        ids = self._target.topic_ids({target.topic for target in moved})
        changed: dict[TopicPartition, PartitionError] = {}
        for target in moved:
            work, now = self._partitions[target], ids.get(target.topic)
            start, end = offsets[target][0] if target in offsets else None, _downstream_end(work)
            if now != work.target_topic_id:
                changed[target] = _target_changed(work, now)
            elif start is not None and start < end:
                changed[target] = TargetTruncatedError(target, end=int(start), map_end=end)
        if changed:
            self._errors |= changed
            raise _PartitionExcludedError

    def _record(self, batch: CommittedBatch) -> None:
        """Record *batch* as committed, and take its end as the end of the map in this tick."""
        self._partitions[batch.target] = extend_map(self._partitions[batch.target], batch)
        self._at[batch.target] = batch.after
        self._committed_batches.append(batch)

    def _new_batch(self) -> TransactionBatch:
        most = self._work.transaction_bytes
        size_bytes = most if self._fits_bytes is None else min(most, self._fits_bytes)
        return TransactionBatch(self._work.transaction_records, size_bytes)


def extend_map(work: PartitionWork, batch: CommittedBatch) -> PartitionWork:
    """Return *work* with the end of *batch* as the end of its map."""
    end = batch.runs[-1].downstream_end if batch.runs else _downstream_end(work)
    return replace(work, map_end=MapEnd(batch.after, end))


def _target_changed(work: PartitionWork, now: str | None) -> TargetChangedError:
    return TargetChangedError(work.target, was=work.target_topic_id, now=now or "none")


def _downstream_end(work: PartitionWork) -> int:
    return work.map_end.downstream_end if work.map_end else 0
