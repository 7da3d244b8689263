"""Check the staged records of a partition's replay against its chain of staged ranges.

In an incarnation each link begins where the previous link ends, and each link has its number of
records. So a missing staged file raises an error, and its records are never skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from schemas.errors.lake import StageIncompleteError
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.replay.slot_work import ChainLink, PartitionWork, Progress


class RowCounter(Protocol):
    """Counts staged records, as `resources.delta.stage_reader.StageReader.count` does."""

    def __call__(self, source: SourcePartition, edges: Sequence[int], total: int) -> list[int]:
        """Return the number of records between each two neighbours of *edges*."""


def cut_link(
    link: ChainLink, partition: TopicPartition, start: int, end: int, count: RowCounter
) -> ChainLink:
    """Return *link* cut to `[start, end)`, with the number of its records there.

    Raises StageIncompleteError if not all records of the whole link are staged.
    """
    start, end = max(start, link.start), min(end, link.end)
    if (start, end) == (link.start, link.end) or not link.count:
        return replace(link, start=start, end=end)
    source = SourcePartition(partition.topic, link.incarnation, partition.partition)
    counts = count(source, (link.start, start, end, link.end), link.count)
    if sum(counts) != link.count:
        raise StageIncompleteError(partition, wanted=link.start, found=None, counted=link.count)
    return replace(link, start=start, end=end, count=counts[1])


class SegmentChain:
    """The links of *work* from *at* on. Raises StageIncompleteError if any is missing."""

    def __init__(self, work: PartitionWork, at: Progress, count: RowCounter) -> None:
        self._partition = work.partition
        order = [link.incarnation for link in work.links]
        if at.incarnation not in order:
            raise StageIncompleteError(work.partition, wanted=at.next_offset, found=None)
        rest = work.links[order.index(at.incarnation) :]
        self._incarnations: dict[SourcePartition, _IncarnationChain] = {}
        for incarnation in dict.fromkeys(link.incarnation for link in rest):
            source = SourcePartition(work.partition.topic, incarnation, work.partition.partition)
            links = [link for link in rest if link.incarnation == incarnation]
            start = at.next_offset if incarnation == at.incarnation else links[0].start
            self._incarnations[source] = _IncarnationChain(work.partition, links, start, count)
        last = rest[-1]
        if last.incarnation == at.incarnation and last.end < at.next_offset:
            raise StageIncompleteError(work.partition, wanted=at.next_offset, found=None)
        self.end = Progress(last.end, last.incarnation, at.target_topic_id)

    def starts(self) -> dict[SourcePartition, int]:
        """Return the first offset to read of each incarnation that has records left."""
        return {s: chain.start for s, chain in self._incarnations.items() if chain.has_more}

    def follow(self, source: SourcePartition, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Count *rows* by link; return them without rows past the end of the chain."""
        return self._incarnations[source].follow(rows)

    def finish(self) -> None:
        """Raise StageIncompleteError if a link had fewer records than its count."""
        for incarnation in self._incarnations.values():
            incarnation.finish()


class _IncarnationChain:
    """The links of one incarnation, in order."""

    def __init__(
        self, partition: TopicPartition, links: list[ChainLink], start: int, count: RowCounter
    ) -> None:
        self._partition, self.start = partition, start
        ahead = [link for link in links if link.end > start]
        edges = [start, *(link.end for link in ahead)]
        for link, edge in zip(ahead, edges, strict=False):
            if link.start > edge or (link is not ahead[0] and link.start != edge):
                raise StageIncompleteError(partition, wanted=edge, found=link.start)
        if ahead:  # progress may lie inside the first link
            ahead[0] = cut_link(ahead[0], partition, start, ahead[0].end, count)
        self._ends = np.array([link.end for link in ahead], np.int64)
        self._counts = np.array([link.count for link in ahead], np.int64)
        self._seen = np.zeros(len(ahead), np.int64)
        self._ahead = ahead

    @property
    def has_more(self) -> bool:
        return bool(self._counts.any())

    def follow(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        offsets = rows.column("offset").to_numpy()
        kept = int(np.searchsorted(offsets, self._ends[-1])) if len(self._ends) else 0
        link_of = np.searchsorted(self._ends, offsets[:kept], side="right")
        self._seen += np.bincount(link_of, minlength=len(self._ends))
        if kept:
            self._check(int(link_of[-1]))
        return rows.slice(0, kept)

    def finish(self) -> None:
        self._check(len(self._ends))

    def _check(self, before: int) -> None:
        """Raise StageIncompleteError if a link before index *before* lacks records."""
        wrong = np.flatnonzero(self._seen != self._counts)
        if len(wrong) and wrong[0] < before:
            link = self._ahead[int(wrong[0])]
            raise StageIncompleteError(
                self._partition, wanted=link.start, found=None, counted=link.count
            )
