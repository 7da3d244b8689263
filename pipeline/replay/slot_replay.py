"""A slot's staged records in; transactions on the target out, and the offset each record got.

The state machine of DESIGN 2.2. Everything is decided by what the target says after `fence`:
nothing older can commit behind it, so progress that is read then is the truth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from pipeline.offset_map.encode import encode
from pipeline.replay.recovery import Log, Staged, settle, start_of
from pipeline.replay.segment_chain import Chain
from pipeline.replay.transaction_batch import Chunk
from schemas.errors import (
    ChunkRefusedError,
    DeltamirrorError,
    PartitionDownError,
    PartitionError,
    RecordRefusedError,
    TargetChangedError,
    TargetTruncatedError,
    ThrottledError,
)
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.stats import Load
from schemas.replay.slot_work import Mapped, Move, PartitionWork, Progress, SlotReplayed, SlotWork

Offsets = np.ndarray[tuple[int], np.dtype[np.int64]]


class Target(Log, Protocol):
    """Everything replay asks of a target cluster: one slot's transaction at a time."""

    def fence(self) -> None:
        """Become the slot's only writer; what an older one left open is settled."""

    def progress(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Progress]:
        """Return the progress of each partition that has one; stable, never pending."""

    def clear(self, partitions: Mapping[TopicPartition, int]) -> None:
        """Abort what this slot's older transactions left open at or past the given offsets.

        Fencing ends them, but brokers may leave a marker out, and then the next commit would make
        those records visible with its own.
        """

    def ends(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | PartitionError]:
        """Return the high watermark of each partition, or why it is not told."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the present ids of *topics*; one that is not there is left out."""

    def seed(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Commit *progress* outside of a transaction, where there is none yet (KAFKA-19163)."""

    def begin(self) -> None:
        """Open a transaction."""

    def send(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Append *rows* in order to the open transaction. Raises ChunkRefusedError."""

    def settle(self) -> Mapping[TopicPartition, Offsets]:
        """Return the offsets given to the records sent, by partition, in order.

        Raises ChunkRefusedError where a record was not taken. ThrottledError: the target's quota
        lets the transaction take too long; `commit` raises it too.
        """

    def commit(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Make everything sent and *progress* visible, both or neither.

        Raises FencedError, CommitUnknownError, ChunkRefusedError.
        """

    def abort(self) -> None:
        """Drop the transaction and its producer; `fence` has to come next."""


def replay_slot(work: SlotWork, staged: Staged, target: Target) -> SlotReplayed:
    """Send what *work* says, chunk by chunk; return the moves made, whatever stops it.

    A partition that the target refuses is left out and the rest is sent again. Raises nothing
    that belongs to the slot: a failure comes back beside the moves that were committed.
    """
    slot = _Slot(work, staged, target)
    while True:
        try:
            slot.run()
        except _LeftOutError:
            target.abort()
        except ThrottledError as throttled:
            target.abort()
            if not slot.shrink(throttled):
                return slot.result(throttled)
        except ChunkRefusedError as refused:
            target.abort()
            if not slot.leave_out(refused):
                return slot.result(refused)
        except DeltamirrorError as error:
            target.abort()
            return slot.result(error)
        else:
            return slot.result(None)


class _LeftOutError(Exception):
    """A partition is left out of a transaction that it has a part in; the rest is sent again."""


class _Slot:
    """One slot's replay: what is left out, what moved, where each partition is."""

    def __init__(self, work: SlotWork, staged: Staged, target: Target) -> None:
        self._work, self._staged, self._target = work, staged, target
        self._partitions = {w.target: w for w in work.partitions}
        self._errors: dict[TopicPartition, PartitionError] = {}
        self._moves: list[Move] = []
        self._at: dict[TopicPartition, Progress] = {}
        self._one_by_one = False
        self._fits_bytes: int | None = None
        self._chunk = self._new_chunk()

    def result(self, failure: DeltamirrorError | None) -> SlotReplayed:
        """Return what came of it, with what stopped all of it, if anything did."""
        errors = [(self._partitions[t].partition, e) for t, e in self._errors.items()]
        return SlotReplayed(
            self._work.slot, tuple(self._moves), tuple(errors), failure, self._fits_bytes
        )

    def run(self) -> None:
        """Fence, settle where each partition is, and send until work or bounds end."""
        self._chunk = self._new_chunk()
        self._target.fence()
        self._settle()
        chains: dict[TopicPartition, Chain] = {}
        for work in self._healthy():
            try:
                chains[work.target] = Chain(work, self._at[work.target])
            except PartitionError as error:
                self._errors[work.target] = error
        if self._send(chains):
            self._finish(chains)

    def leave_out(self, refused: ChunkRefusedError) -> bool:
        """Mark the partitions that were refused; return whether to go on without them.

        Where no report tells which, they are sent one by one until the partition is alone.
        """
        named = dict(refused.partitions)
        held = self._chunk.targets()
        if not named and len(held) == 1:
            named = {held[0]: refused.why}
        if not named and self._one_by_one:
            return False
        self._one_by_one = self._one_by_one or not named
        for target, why in named.items():
            start = self._at[target].next_offset
            end = self._chunk.progress[target].next_offset
            kind = PartitionDownError if refused.passes else RecordRefusedError
            self._errors[target] = kind(target, start, end, why)
        return True

    def shrink(self, throttled: ThrottledError) -> bool:
        """Let chunks hold what the target's quota has room for; return whether they can."""
        if self._chunk.records <= 1:
            return False
        self._fits_bytes = max(1, int(self._chunk.size_bytes * throttled.share))
        return True

    def _healthy(self) -> list[PartitionWork]:
        return [w for w in self._partitions.values() if w.target not in self._errors]

    def _settle(self) -> None:
        """Read progress, compare it with the map, mend the map, seed what has none."""
        works = self._healthy()
        targets = [w.target for w in works]
        known = self._target.progress(targets)
        self._target.clear({w.target: _mapped_to(w) for w in works if _is_all(w, known)})
        ends = self._target.ends(targets)
        seeds: dict[TopicPartition, Progress] = {}
        for work in works:
            found, end = known.get(work.target), ends[work.target]
            try:
                if isinstance(end, PartitionError):
                    raise end
                settled = settle(work, self._work.files, found, end, self._staged, self._target)
            except PartitionError as error:
                self._errors[work.target] = self._made_anew(work) or error
                continue
            self._at[work.target] = settled.at
            for move in settled.mended:
                self._note(move)
            if found is None:
                seeds[work.target] = settled.at
        if seeds:
            self._target.seed(seeds)

    def _send(self, chains: Mapping[TopicPartition, Chain]) -> bool:
        """Send rows in chunks; return whether all of them went before the bounds were met."""
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
            if self._is_apart(target, source.topic_id):
                self._commit()
            while rows.num_rows:
                topic_id = self._partitions[target].target_topic_id
                taken = self._chunk.take(target, rows, source.topic_id, topic_id)
                rows = rows.slice(taken)
                if self._chunk.is_full:
                    records += self._chunk.records
                    size_bytes += self._chunk.size_bytes
                    self._commit()
                    if self._is_enough(records, size_bytes):
                        return False
        return True

    def _is_enough(self, records: int, size_bytes: int) -> bool:
        """Return whether to report back; a slot that is throttled does so after each chunk."""
        if self._fits_bytes is not None:
            return True
        return records >= self._work.max_records or size_bytes >= self._work.max_bytes

    def _is_apart(self, target: TopicPartition, incarnation: str) -> bool:
        """Return whether rows of *target* must not join the chunk: one holds one life of each."""
        held = self._chunk.progress.get(target)
        if held is not None and held.incarnation != incarnation:
            return True
        return self._one_by_one and self._chunk.targets() not in ([], [target])

    def _finish(self, chains: Mapping[TopicPartition, Chain]) -> None:
        """Commit what is left, with every whole chain's end: past markers at its tail too."""
        for target, chain in chains.items():
            if target in self._errors:
                continue
            try:
                chain.finish()
            except PartitionError as error:
                self._errors[target] = error
                continue
            if not self._is_apart(target, chain.end.incarnation):
                self._chunk.reach(target, chain.end)
        self._commit()

    def _commit(self) -> None:
        """Send the chunk as one transaction, with progress; note the moves."""
        chunk = self._chunk
        moved = {t: p for t, p in chunk.progress.items() if self._at[t] != p}
        if moved:
            self._target.begin()
            for target, rows in chunk.rows:
                self._target.send(target, rows)
            offsets = self._target.settle()
            self._vouch(moved, offsets)
            self._target.commit(moved)
            loads = chunk.loads()
            for target, after in moved.items():
                upstream = chunk.upstream(target)
                runs = tuple(encode(upstream, offsets[target])) if len(upstream) else ()
                work = self._partitions[target]
                before = work.mapped.progress if work.mapped else None
                load = loads.get(target, Load())
                self._note(
                    Move(work.partition, target, before, after, runs, len(upstream), load=load)
                )
        self._chunk = self._new_chunk()

    def _made_anew(self, work: PartitionWork) -> PartitionError | None:
        """Return the error that the topic is not the planned one, which explains any other."""
        now = self._target.topic_ids([work.target.topic]).get(work.target.topic)
        if now == work.target_topic_id:
            return None
        return TargetChangedError(work.target, work.target_topic_id, now or "none")

    def _vouch(
        self, moved: Collection[TopicPartition], offsets: Mapping[TopicPartition, Offsets]
    ) -> None:
        """Leave out whose topic is not the planned one, or whose log was cut, since fencing.

        The ids are those after all records are in: no former life comes back. Raises
        _LeftOutError: the transaction must not be committed.
        """
        ids = self._target.topic_ids({target.topic for target in moved})
        changed: dict[TopicPartition, PartitionError] = {}
        for target in moved:
            work, now = self._partitions[target], ids.get(target.topic)
            end = work.mapped.downstream_end if work.mapped else 0
            if now != work.target_topic_id:
                changed[target] = TargetChangedError(target, work.target_topic_id, now or "none")
            elif target in offsets and offsets[target][0] < end:
                start = int(offsets[target][0])
                changed[target] = TargetTruncatedError(target, end=start, mapped=end)
        if changed:
            self._errors |= changed
            raise _LeftOutError

    def _note(self, move: Move) -> None:
        """Remember *move*: a later look in this tick takes its end for the map's."""
        work = self._partitions[move.target]
        end = work.mapped.downstream_end if work.mapped else 0
        end = move.runs[-1].downstream_end if move.runs else end
        self._partitions[move.target] = replace(work, mapped=Mapped(move.after, end))
        self._at[move.target] = move.after
        self._moves.append(move)

    def _new_chunk(self) -> Chunk:
        size_bytes = self._work.chunk_bytes
        if self._fits_bytes is not None:
            size_bytes = min(size_bytes, self._fits_bytes)
        return Chunk(self._work.chunk_records, size_bytes)


def _mapped_to(work: PartitionWork) -> int:
    return work.mapped.downstream_end if work.mapped else 0


def _is_all(work: PartitionWork, known: Mapping[TopicPartition, Progress]) -> bool:
    """Return whether what was committed of *work* is in the map: what else is open never was."""
    return known.get(work.target) in (None, start_of(work))
