"""Filter names of topics, groups or configs with include and exclude patterns."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache

from schemas.errors.configuration import InvalidPatternError

# `[a[b]]` is a union in Java. Python reads the inner bracket as a character, without a warning.
NESTED_CLASS = re.compile(r"\[[^\]]*\[")

NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class NameFilter:
    """Match names that *include* matches and *exclude* does not; an empty *include* matches none.

    As in MirrorMaker 2, the entries of a list are joined with `|` into one regular expression that
    must match the full name. Raises InvalidPatternError if Python cannot compile it.
    """

    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _compiled(self.include)
        _compiled(self.exclude)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the entries of *include* that are valid names of topics or groups."""
        return tuple(each for each in self.include if NAME.fullmatch(each))

    def matches(self, name: str) -> bool:
        return _matches_any(self.include, name) and not _matches_any(self.exclude, name)


def _matches_any(patterns: tuple[str, ...], name: str) -> bool:
    return bool(patterns) and _compiled(patterns).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return the joined *patterns*. Raises InvalidPatternError with the first invalid one."""
    try:
        return _compile("|".join(patterns))
    except (re.error, FutureWarning) as failure:
        raise InvalidPatternError(_first_invalid(patterns), reason=str(failure)) from None


def _compile(pattern: str) -> re.Pattern[str]:
    """Raise re.error or FutureWarning if *pattern* is invalid or means something else in Java."""
    if NESTED_CLASS.search(re.sub(r"\\.", "", pattern)):
        raise re.error("a class inside of a class")
    with warnings.catch_warnings():
        # Python warns if a class contains `&&`, which is an intersection in Java.
        warnings.simplefilter("error", FutureWarning)
        return re.compile(pattern, re.ASCII)


def _first_invalid(patterns: tuple[str, ...]) -> str:
    for pattern in patterns:
        try:
            _compile(pattern)
        except (re.error, FutureWarning):
            return pattern
    return ", ".join(patterns)
