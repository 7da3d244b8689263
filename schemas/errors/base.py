"""What every error of deltamirror has, with numbers and the next thing to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[DeltamirrorError], args: tuple[Any, ...], state: Mapping[str, Any]
) -> DeltamirrorError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(DeltamirrorError):
    """What was asked for cannot be meant: exit code 2."""


class PartitionError(DeltamirrorError):
    """Something is wrong with one partition; the others go on.

    What *is_transient* by itself is tried again before long, everything else at the next refresh.
    """

    is_transient = False


class NothingToTranslateError(DeltamirrorError):
    """Nothing of this partition has arrived, or it is not mirrored."""

    hint = "`deltamirror status` shows what has been replayed."


class DifferencesFoundError(DeltamirrorError):
    """A comparison found records that differ."""

    hint = "`deltamirror verify --format json` names the first ones."


class NotCaughtUpError(DeltamirrorError):
    """A run that was to end when caught up ended with something failed or paused."""

    hint = "`deltamirror status` shows each one's error and what to do."

    def __init__(self, partition_errors: Sequence[str]) -> None:
        first = partition_errors[0] if partition_errors else "nothing moved"
        more = f" (and {len(partition_errors) - 1} more)" if len(partition_errors) > 1 else ""
        super().__init__(f"not caught up: {first}{more}")


class RequestRefusedError(DeltamirrorError):
    """A cluster answered, and said no; *code* is Kafka's name for the reason."""

    hint = "See the broker's log; where rights are missing, grant them to deltamirror's user."

    def __init__(self, alias: str, what: str, code: str, reason: str) -> None:
        super().__init__(f"cluster {alias} refused to {what}: {reason} ({code})")
        self.code = code


class GroupActiveError(DeltamirrorError):
    """Offsets of a consumer group cannot be set while it has members."""

    hint = "Stop the group's consumers on that cluster, then do it again."

    def __init__(self, alias: str, group: str) -> None:
        super().__init__(f"group {group} on cluster {alias} has active members")


class DefectError(DeltamirrorError):
    """Something failed in a way that was not thought of."""

    hint = "This is a defect of deltamirror: the log holds the whole report. The loop tries again."

    def __init__(self, error: BaseException) -> None:
        super().__init__("".join(f"{type(error).__name__}: {error}".splitlines()[:1]))
