"""The digests of a flow's partitions on every side, compared by range: what is left in doubt?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from deltamirror.verification.process_pool import MANY, Summed, summing
from deltamirror.verification.range_digests import Places, SumTask
from deltamirror.verification.read_plan import PartitionPlan, bundles
from deltamirror.verification.resume_file import Journal
from pipeline.verification.parts import RECORDS, SAMPLE_RECORDS, Part, sample
from pipeline.verification.suspects import Doubt, SideSums, Verdict, judge
from resources.delta.file_index import StagedFiles
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.verification import SOURCE, STAGED, TARGET


class Reporter(Protocol):
    """Hears how far a comparison is; never lets an error out."""

    def began(self, flow: str, records: int, resumed: int) -> None:
        """Hear that *records* of *flow* are compared, *resumed* of them by a former run."""

    def compared(self, flow: str, records: int) -> None:
        """Hear that about *records* more were compared."""


class Silent:
    """A reporter that says nothing."""

    def began(self, flow: str, records: int, resumed: int) -> None:
        """Say nothing."""

    def compared(self, flow: str, records: int) -> None:
        """Say nothing."""


class DigestAudit:
    """Sums up a *share* (0 to 1) of what is planned of a flow, on every side.

    What agrees is in the plans' findings afterwards, what does not in *doubts*. *resumed* records
    were known from the journal.
    """

    def __init__(
        self,
        flow: str,
        plans: Mapping[TopicPartition, PartitionPlan],
        files: StagedFiles,
        sides: Collection[str],
        share: float,
    ) -> None:
        self._flow, self._plans, self._files = flow, plans, files
        self._sides, self._share = sides, share
        self.doubts = {partition: Doubt() for partition in plans}
        self.resumed = 0

    def run(self, places: Places, processes: int, journal: Journal, reporter: Reporter) -> None:
        """Read and compare. Raises WorkerDiedError, and what ends the reading of the lake."""
        total = int(sum(plan.records for plan in self._plans.values()) * self._share)
        reporter.began(self._flow, total, journal.records)
        # What is read of this side tells how far it is; the others are read beside it.
        leading = next(side for side in (TARGET, SOURCE, STAGED) if side in {*self._sides, STAGED})
        with summing(
            places,
            processes if total - journal.records > MANY else 1,
            leading,
            lambda records: reporter.compared(self._flow, records),
        ) as sum_up:
            for part, sums in _together(sum_up(self._tasks(journal))):
                verdict = judge(part, sums, is_counted=STAGED in self._sides)
                self._settle(part, verdict)
                if not verdict.errors:
                    journal.add(part, verdict)

    def _tasks(self, journal: Journal) -> Iterator[SumTask]:
        """Yield what is to be read: of every part one side after another."""
        planned = ((plan, self._parts(plan, journal)) for plan in self._plans.values())
        for parts in bundles(planned):
            slot = parts[0].source.slot
            start, end = min(each.start for each in parts), max(each.end for each in parts)
            paths = self._files.holding(slot, start, end)
            for side in (SOURCE, TARGET, STAGED):
                asked = tuple(part for part in parts if side in _sides_of(part))
                if asked:
                    yield SumTask(side, asked, paths)

    def _parts(self, plan: PartitionPlan, journal: Journal) -> Iterator[Part]:
        """Yield the parts of a partition that are to be read: those that are not known yet."""
        parts = plan.parts(RECORDS if self._share == 1 else SAMPLE_RECORDS)
        if self._share < 1:
            parts = sample(parts, self._share, f"{journal.seed} {plan.partition}")
        for part in parts:
            verdict = journal.get(part)
            if verdict is None:
                yield part
            else:
                self.resumed += part.records
                self._settle(part, verdict)

    def _settle(self, part: Part, verdict: Verdict) -> None:
        partition = part.source.plain
        plan = self._plans[partition]
        plan.found.records += verdict.records
        for kind, count in verdict.explained.items():
            plan.found.counts[kind] += count
        plan.found.tell(verdict.errors)
        self.doubts[partition].add(part, plan.lives.index(part.source.topic_id), verdict)


def _sides_of(part: Part) -> list[str]:
    beside = {SOURCE: part.on_source, TARGET: part.on_target}
    return [STAGED, *(side for side, asked in beside.items() if asked is not None)]


def _together(summed: Iterator[Summed]) -> Iterator[tuple[Part, Mapping[str, SideSums]]]:
    """Yield every part with the sums of all its sides, once the last of them is there."""
    waiting: dict[tuple[SourcePartition, int], dict[str, SideSums]] = {}
    for task, found in summed:
        for part, sums in zip(task.parts, found, strict=True):
            key = part.source, part.start
            sides = waiting.setdefault(key, {})
            sides[task.side] = sums
            if len(sides) == len(_sides_of(part)):
                yield part, waiting.pop(key)
