"""Findings of a comparison of source, stage and target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.errors.base import DeltamirrorError, DifferencesFoundError
from schemas.kafka.partition import TopicPartition

LOST, DUPLICATED, REORDERED, ALTERED = KINDS = ("lost", "duplicated", "reordered", "altered")
"""The four kinds of differences."""

GONE_UPSTREAM, EXPIRED_STAGED, EXPIRED_DOWNSTREAM, NEVER_COPIED, FOREIGN = EXPLAINED = (
    "gone_upstream",
    "expired_staged",
    "expired_downstream",
    "never_copied",
    "foreign",
)
"""Counts that are reported and are not differences: records that retention or compaction deleted on
one side, records that MirrorMaker 2 had not copied before the import, and other producers' records.
"""

SOURCE, STAGED, TARGET = SIDES = ("source", "staged", "target")
"""The three sides on which a flow's records are compared."""

MAX_DIFFERENCES = 20
"""Maximum number of differences of a partition that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One record that differs: *offset* is the source's, *detail* is a text with the difference.

    It differs between *sides*. If there is one side only, it differs from its own segment or map.
    """

    kind: str
    offset: int
    sides: tuple[str, ...]
    detail: str


@dataclass
class PartitionFindings:
    """Findings in one partition of a flow; *records* is the number of compared staged records.

    *altered* are the offsets of altered records. Each is counted once, although an altered staged
    record differs from both clusters. *errors* prevented a comparison.
    """

    flow: str
    partition: TopicPartition
    records: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*KINDS, *EXPLAINED), 0))
    differences: list[Difference] = field(default_factory=list)
    altered: set[int] = field(default_factory=set)
    errors: list[DeltamirrorError] = field(default_factory=list)

    def add(
        self, kind: str, offset: int, sides: tuple[str, ...], detail: str, count: int = 1
    ) -> None:
        """Count a difference between *sides*, and list it if it is one of the first."""
        if kind == ALTERED:
            if offset in self.altered:
                return
            self.altered.add(offset)
        self.counts[kind] += count
        if len(self.differences) < MAX_DIFFERENCES:
            self.differences.append(Difference(kind, offset, sides, detail))

    def add_errors(self, errors: Iterable[DeltamirrorError]) -> None:
        """Add *errors*, without those that have the text of an earlier one."""
        for error in errors:
            if str(error) not in map(str, self.errors):
                self.errors.append(error)

    @property
    def is_same(self) -> bool:
        return not self.errors and not any(self.counts[kind] for kind in KINDS)

    def to_json(self) -> dict[str, Any]:
        where = {"topic": self.partition.topic, "partition": self.partition.partition}
        return {**where, "records": self.records, **self.counts}


@dataclass(frozen=True)
class FlowFindings:
    """Findings in one flow; *errors* concern the whole flow.

    *resumed* is the number of records that an earlier, interrupted run compared. *sample* is the
    share of records to compare, 0 to 1.
    """

    flow: str
    partitions: Sequence[PartitionFindings] = ()
    errors: Sequence[DeltamirrorError] = ()
    resumed: int = 0
    sample: float = 1.0

    def to_json(self) -> dict[str, Any]:
        entries = [each.to_json() for each in self.partitions]
        progress = {"resumed": self.resumed, "sample": self.sample}
        return {"flow": self.flow, **_totals(self.partitions), **progress, "partitions": entries}


@dataclass(frozen=True)
class Verification:
    """Findings of a run of `verify`."""

    flows: Sequence[FlowFindings]

    @property
    def partitions(self) -> list[PartitionFindings]:
        return [each for flow in self.flows for each in flow.partitions]

    @property
    def totals(self) -> dict[str, int]:
        """Return the sums over all flows by name: records, differences, explained counts."""
        return _totals(self.partitions)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Return the errors that prevented comparisons, as JSON objects."""
        found = [_error(flow.flow, None, error) for flow in self.flows for error in flow.errors]
        return found + [_error(p.flow, p.partition, e) for p in self.partitions for e in p.errors]

    @property
    def is_same(self) -> bool:
        return not self.errors and all(each.is_same for each in self.partitions)

    def check(self) -> None:
        """Raise DifferencesFoundError if there is a difference or an error."""
        if self.is_same:
            return
        totals = self.totals
        text = ", ".join(f"{totals[kind]:,} {kind}" for kind in KINDS)
        failed = f"; {len(self.errors)} comparisons failed" if self.errors else ""
        named = (
            f"; the first: {d.kind} {each.partition}@{d.offset} ({', '.join(d.sides)})"
            for each in self.partitions
            for d in each.differences
        )
        first = next(named, "")
        raise DifferencesFoundError(f"of {totals['records']:,} records {text}{failed}{first}")

    def to_json(self) -> dict[str, Any]:
        return {
            **self.totals,
            "flows": [flow.to_json() for flow in self.flows],
            "differences": [
                {
                    "flow": each.flow,
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "offset": difference.offset,
                    "kind": difference.kind,
                    "sides": difference.sides,
                    "detail": difference.detail,
                }
                for each in self.partitions
                for difference in each.differences
            ],
            "errors": self.errors,
        }


def _totals(partitions: Sequence[PartitionFindings]) -> dict[str, int]:
    names = (*KINDS, *EXPLAINED)
    counts = {name: sum(each.counts[name] for each in partitions) for name in names}
    return {"records": sum(each.records for each in partitions), **counts}


def _error(flow: str, at: TopicPartition | None, error: DeltamirrorError) -> dict[str, Any]:
    return {
        "flow": flow,
        "topic": at.topic if at else None,
        "partition": at.partition if at else None,
        "type": error.kind,
        "message": str(error),
        "hint": error.hint,
    }
