"""Which topics, groups or settings are meant: names and regular expressions, some excluded."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache

from schemas.errors import InvalidPatternError


@dataclass(frozen=True)
class NameFilter:
    """What *include* matches and *exclude* does not; an empty *include* matches nothing.

    As in MirrorMaker 2 the entries of a list are joined with `|` into one regular expression
    that has to match the whole name. Raises InvalidPatternError where Python cannot read it.
    """

    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _compiled(self.include)
        _compiled(self.exclude)

    def matches(self, name: str) -> bool:
        """Return whether *name* is meant."""
        return _found(self.include, name) and not _found(self.exclude, name)


def _found(patterns: tuple[str, ...], name: str) -> bool:
    return bool(patterns) and _compiled(patterns).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return the joined *patterns*; what Java and Python would read differently is an error."""
    with warnings.catch_warnings():
        # Python warns where a class holds `[` or `&&`: nested classes and intersections in Java.
        warnings.simplefilter("error", FutureWarning)
        try:
            return re.compile("|".join(patterns), re.ASCII)
        except (re.error, FutureWarning) as failure:
            raise InvalidPatternError(_first_bad(patterns), str(failure)) from None


def _first_bad(patterns: tuple[str, ...]) -> str:
    for pattern in patterns:
        try:
            re.compile(pattern, re.ASCII)
        except (re.error, FutureWarning):
            return pattern
    return ", ".join(patterns)
