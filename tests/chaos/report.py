"""Report of a chaos run: a table for people, JSON for files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from tests.chaos.audit import KINDS, Counts
from tests.chaos.groups import PartitionKey

SHOWN = 20
"""Maximum number of errors that are listed one by one."""


@dataclass
class Findings:
    """Findings of a run; *wrong* has a line for each error."""

    seed: int
    seconds: float
    disasters: dict[str, int] = field(default_factory=dict)
    committed: dict[PartitionKey, Counts] = field(default_factory=dict)
    uncommitted: dict[PartitionKey, Counts] = field(default_factory=dict)
    arrived_meanwhile: int = 0
    """Growth of the target's logs, in offsets, at the end of the last disaster."""
    catch_up_s: float = 0.0
    verify: dict[str, Any] = field(default_factory=dict)
    translations: int = 0
    wrong_translations: list[str] = field(default_factory=list)
    driver_ended: list[str] = field(default_factory=list)
    longest_stall_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Add a line to *wrong* for each count or list that shows an error."""
        sums = total(self.committed)
        if not sums.records:
            self.wrong.append("nothing was mirrored")
        self.wrong += [f"{getattr(sums, kind)} {kind}" for kind in KINDS if getattr(sums, kind)]
        self.wrong += [f"verify: {self.verify[k]} {k}" for k in KINDS if self.verify.get(k)]
        self.wrong += [f"translation: {each}" for each in self.wrong_translations]
        self.wrong += [f"deltamirror run {each}" for each in self.driver_ended]

    def to_json(self) -> dict[str, Any]:
        """Return the findings as JSON values."""
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            "disasters": self.disasters,
            **asdict(total(self.committed)),
            "read_uncommitted": asdict(total(self.uncommitted)),
            "partitions": [
                {"topic": topic, "partition": partition, **asdict(counts)}
                for (topic, partition), counts in sorted(self.committed.items())
            ],
            "verify": self.verify,
            "translations": self.translations,
            "wrong_translations": len(self.wrong_translations),
            "arrived_meanwhile": self.arrived_meanwhile,
            "longest_stall_s": round(self.longest_stall_s, 1),
            "catch_up_s": round(self.catch_up_s, 1),
            "wrong": self.wrong[:SHOWN],
        }

    def table(self) -> Table:
        """Return a table with a line for each partition and a total, and the other findings."""
        shown = Table(
            "partition",
            box=box.SIMPLE_HEAD,
            title=f"Chaos, seed {self.seed}, {self.seconds:g} s",
            caption=Text("\n".join(self._below())),
            caption_justify="left",
        )
        for heading in ("records", *KINDS, "a read_uncommitted reader sees too many"):
            shown.add_column(heading, justify="right")
        for topic_partition, counts in sorted(self.committed.items()):
            shown.add_row(
                f"{topic_partition[0]}[{topic_partition[1]}]",
                *_cells(counts, self.uncommitted[topic_partition]),
            )
        shown.add_section()
        shown.add_row("all", *_cells(total(self.committed), total(self.uncommitted)))
        return shown

    def _below(self) -> list[str]:
        disasters = ", ".join(f"{n} {name}" for name, n in sorted(self.disasters.items()))
        verify = ", ".join(f"{self.verify.get(k, '?')} {k}" for k in ("records", *KINDS))
        return [
            f"disasters: {disasters or 'none'}",
            f"deltamirror verify: {verify}",
            f"translations: {self.translations:,}, wrong: {len(self.wrong_translations)}",
            f"target offsets reached meanwhile: {self.arrived_meanwhile:,}",
            f"longest stall {self.longest_stall_s:.1f} s, caught up in {self.catch_up_s:.1f} s",
            *(f"WRONG: {each}" for each in self.wrong[:SHOWN]),
        ]


def total(counts: Mapping[PartitionKey, Counts]) -> Counts:
    """Return the sums over all partitions."""
    names = ("records", *KINDS)
    return Counts(**{name: sum(getattr(each, name) for each in counts.values()) for name in names})


def _cells(committed: Counts, uncommitted: Counts) -> list[str]:
    numbers = [getattr(committed, name) for name in ("records", *KINDS)]
    return [f"{n:,}" for n in (*numbers, uncommitted.duplicated + uncommitted.altered)]
