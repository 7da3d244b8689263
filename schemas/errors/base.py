"""What every error of deltamirror has, with numbers and the next thing to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DeltamirrorError(Exception):
    """Anything that a person should read as one line."""

    hint: str = ""

    @property
    def kind(self) -> str:
        """Return the error's type as JSON and tables show it."""
        return type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        """Come back from a Spark task as it was: Python would make it anew from its message."""
        return _again, (type(self), self.args, self.__dict__)


def _again(
    kind: type[DeltamirrorError], args: tuple[Any, ...], state: Mapping[str, Any]
) -> DeltamirrorError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(DeltamirrorError):
    """What was asked for cannot be meant: exit code 2."""


class PartitionError(DeltamirrorError):
    """Something is wrong with one partition; the others go on.

    What *passes* by itself is tried again before long, everything else at the next refresh.
    """

    passes = False
