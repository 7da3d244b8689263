"""Compare the digests of a flow's partitions on all sides, and collect ranges that differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from deltamirror.verification.process_pool import MIN_RECORDS_FOR_POOL, SummedTask, sum_pool
from deltamirror.verification.range_digests import SideSettings, SumTask
from deltamirror.verification.read_plan import PartitionPlan, bundles
from deltamirror.verification.resume_file import ResumeFile
from pipeline.verification.parts import PART_RECORDS, SAMPLE_RECORDS, Part, sample_parts
from pipeline.verification.suspects import SideDigests, SumComparison, SuspectRanges, compare_sums
from resources.delta.file_index import FileIndex
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.verification import SOURCE, STAGED, TARGET


class ProgressListener(Protocol):
    """Receive the progress of a comparison. Implementations must not raise."""

    def started(self, flow: str, records: int, resumed: int) -> None:
        """Handle the start: *records* of *flow* in total, *resumed* compared by an earlier run."""

    def compared(self, flow: str, records: int) -> None:
        """Handle that about *records* more were compared."""


class NullProgressListener:
    """A listener that ignores all progress."""

    def started(self, flow: str, records: int, resumed: int) -> None:
        """Ignore the start."""

    def compared(self, flow: str, records: int) -> None:
        """Ignore the progress."""


class DigestPass:
    """Compute and compare digests of a *share* (0 to 1) of a flow's planned parts, on all sides.

    Afterwards the plans' findings have the results of the ranges that agree, and *suspect_ranges*
    has the other ranges. *resumed* is the number of records whose result came from the resume
    file.
    """

    def __init__(
        self,
        flow: str,
        plans: Mapping[TopicPartition, PartitionPlan],
        files: FileIndex,
        sides: Collection[str],
        share: float,
    ) -> None:
        self._flow, self._plans, self._files = flow, plans, files
        self._sides, self._share = sides, share
        self.suspect_ranges = {partition: SuspectRanges() for partition in plans}
        self.resumed = 0

    def run(
        self,
        side_settings: SideSettings,
        processes: int,
        resume_file: ResumeFile,
        listener: ProgressListener,
    ) -> None:
        """Read and compare. Raises WorkerDiedError, and LakeError if the lake cannot be read."""
        total = int(sum(plan.records for plan in self._plans.values()) * self._share)
        listener.started(self._flow, total, resume_file.records)
        # Progress is counted on this side only; the others are read at the same time.
        leading = next(side for side in (TARGET, SOURCE, STAGED) if side in {*self._sides, STAGED})
        with sum_pool(
            side_settings,
            processes if total - resume_file.records > MIN_RECORDS_FOR_POOL else 1,
            leading,
            lambda records: listener.compared(self._flow, records),
        ) as sum_parts:
            for part, digests in _collect_sides(sum_parts(self._tasks(resume_file))):
                comparison = compare_sums(part, digests, is_counted=STAGED in self._sides)
                self._apply_verdict(part, comparison)
                if not comparison.errors:
                    resume_file.add(part, comparison)

    def _tasks(self, resume_file: ResumeFile) -> Iterator[SumTask]:
        """Yield the reading tasks: one for each side of each bundle of parts."""
        planned = ((plan, self._parts(plan, resume_file)) for plan in self._plans.values())
        for parts in bundles(planned):
            slot = parts[0].source.slot
            start, end = min(each.start for each in parts), max(each.end for each in parts)
            paths = self._files.files_for(slot, start, end)
            for side in (SOURCE, TARGET, STAGED):
                asked = tuple(part for part in parts if side in _part_sides(part))
                if asked:
                    yield SumTask(side, asked, paths)

    def _parts(self, plan: PartitionPlan, resume_file: ResumeFile) -> Iterator[Part]:
        """Yield the parts of a partition to read; apply the results that the resume file has."""
        parts = plan.parts(PART_RECORDS if self._share == 1 else SAMPLE_RECORDS)
        if self._share < 1:
            parts = sample_parts(parts, self._share, f"{resume_file.seed} {plan.partition}")
        for part in parts:
            comparison = resume_file.get(part)
            if comparison is None:
                yield part
            else:
                self.resumed += part.records
                self._apply_verdict(part, comparison)

    def _apply_verdict(self, part: Part, comparison: SumComparison) -> None:
        partition = part.source.topic_partition
        plan = self._plans[partition]
        plan.found.records += comparison.records
        for kind, count in comparison.explained.items():
            plan.found.counts[kind] += count
        plan.found.add_errors(comparison.errors)
        self.suspect_ranges[partition].add(
            part, plan.incarnations.index(part.source.topic_id), comparison
        )


def _part_sides(part: Part) -> list[str]:
    beside = {SOURCE: part.on_source, TARGET: part.on_target}
    return [STAGED, *(side for side, asked in beside.items() if asked is not None)]


def _collect_sides(
    summed: Iterator[SummedTask],
) -> Iterator[tuple[Part, Mapping[str, SideDigests]]]:
    """Yield each part with the digests of all its sides, as soon as they are complete."""
    waiting: dict[tuple[SourcePartition, int], dict[str, SideDigests]] = {}
    for task, found in summed:
        for part, digests in zip(task.parts, found, strict=True):
            key = part.source, part.start
            sides = waiting.setdefault(key, {})
            sides[task.side] = digests
            if len(sides) == len(_part_sides(part)):
                yield part, waiting.pop(key)
