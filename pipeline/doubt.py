"""What of a partition is in doubt after its digests were compared, and where to look for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.cut import Part
from pipeline.suspect import Span, Verdict
from pipeline.verify import Evidence
from pipeline.verify_target import Life, TargetView, rising_runs


@dataclass
class Doubt:
    """The *suspects* of each incarnation and the *extras* on the target, each in order.

    *met*: from this (number of the incarnation, upstream offset) on it is known that earlier
    records are on the target.
    """

    suspects: dict[str, list[Span]] = field(default_factory=dict)
    extras: list[Span] = field(default_factory=list)
    met: tuple[int, int] | None = None

    def __bool__(self) -> bool:
        return bool(self.suspects or self.extras)

    def add(self, part: Part, number: int, verdict: Verdict) -> None:
        """Take in what was found of *part*, of the incarnation with *number*, in any order."""
        if verdict.suspects:
            spans = self.suspects.setdefault(part.source.topic_id, [])
            spans += verdict.suspects
            spans.sort()
        self.extras = sorted([*self.extras, *verdict.extras])
        if verdict.met is not None:
            met = number, verdict.met
            self.met = met if self.met is None else min(met, self.met)


def within(evidence: Iterable[Evidence], spans: Sequence[Span]) -> list[Evidence]:
    """Return the *evidence* of which *spans* are made; both are in order."""
    found: list[Evidence] = []
    left = iter(spans)
    span = next(left, None)
    for each in evidence:
        while span is not None and span[1] < each.end:
            span = next(left, None)
        if span is None:
            break
        if span[0] <= each.start and each.end <= span[1]:
            found.append(each)
    return found


def around(doubt: Doubt, lives: Sequence[Life], view: TargetView) -> list[Span]:
    """Return the places on the target, in order, where what is in doubt may lie.

    A suspect's places reach from the last record before it that the map knows to the first one
    behind it.
    """
    rising, _ = rising_runs(lives)
    runs = [rising[life.incarnation] for life in lives]
    spans = list(doubt.extras)
    for number, life in enumerate(lives):
        floor = max((each.downstream_end for each in runs[:number]), default=0)
        later = (int(each.downstream[0]) for each in runs[number + 1 :] if len(each))
        ceiling = next(later, view.end)
        for start, end in doubt.suspects.get(life.incarnation, ()):
            first = max(floor, runs[number].place_behind(start))
            behind = runs[number].place_from(end)
            spans.append((first, max(first, ceiling if behind is None else behind)))
    return sorted(spans)
