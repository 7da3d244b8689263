"""Base classes of all errors, and the errors that belong to no other module of this package."""

from __future__ import annotations

import copyreg
from collections.abc import Sequence
from string import Formatter
from typing import Any, ClassVar


def template_fields(template: str) -> tuple[str, ...]:
    """Return the names of the fields of a `str.format` template, each once, in its order."""
    names = (name for _, name, _, _ in Formatter().parse(template) if name)
    return tuple(dict.fromkeys(name.split(".")[0] for name in names))


class DeltamirrorError(Exception):
    """An error that a user sees as one line, with a hint.

    `message` and `hint` are `str.format` templates. An error is raised with their fields:

        raise RecordsExpiredError(partition, wanted=10, low=20)

    The positional argument fills the first field of `message`; without a `message` of its own, a
    class takes the whole text. The fields become attributes. `hint=` replaces the class's hint.

    A field that the code reads, or that is in no template, is annotated in its class, with a
    default if a call may omit it. `tests/schemas/errors/test_errors.py` checks every call.
    """

    message: ClassVar[str] = "{text}"
    hint: str = ""

    def __init__(
        self, first: object = None, /, *, hint: str | None = None, **fields: object
    ) -> None:
        if first is not None:
            fields[template_fields(self.message)[0]] = first
        self.__dict__.update(fields)
        self.hint = self.hint.format_map(fields) if hint is None else hint
        super().__init__(self.message.format_map(fields))

    @property
    def kind(self) -> str:
        """Return the error's type as JSON and tables show it."""
        return type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle text and attributes, as `__init__` takes neither; Spark tasks return errors."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(DeltamirrorError):
    """Invalid configuration or arguments. A command ends with exit code 2."""


class PartitionError(DeltamirrorError):
    """An error of one partition. Other partitions continue.

    An error that *is_transient* is retried soon, any other at the next topic refresh.
    """

    is_transient: bool = False


class NothingToTranslateError(DeltamirrorError):
    """No record of the partition is on the target, or the partition is not mirrored."""

    hint = "Run `deltamirror status` to see what has been replayed."


class DifferencesFoundError(DeltamirrorError):
    """A comparison found records that differ."""

    hint = "Run `deltamirror verify --format json` to list the first ones."


class NotCaughtUpError(DeltamirrorError):
    """A run until caught up ended while something was failing or paused."""

    hint = "Run `deltamirror status` to see the error of each partition, with its hint."

    def __init__(self, partition_errors: Sequence[str]) -> None:
        first = partition_errors[0] if partition_errors else "nothing moved"
        more = f" (and {len(partition_errors) - 1} more)" if len(partition_errors) > 1 else ""
        super().__init__(f"not caught up: {first}{more}")


class RequestRefusedError(DeltamirrorError):
    """A cluster answered a request with an error. *code* is Kafka's name of it."""

    message = "cluster {alias} refused to {action}: {reason} ({code})"
    hint = "See the broker's log. If a permission is missing, grant it to deltamirror's user."
    code: str


class GroupActiveError(DeltamirrorError):
    """The offsets of a consumer group cannot be set while the group has members."""

    message = "group {group} on cluster {alias} has active members"
    hint = "Stop the group's consumers on that cluster, then retry."


class DefectError(DeltamirrorError):
    """An unexpected exception."""

    hint = "This is a defect of deltamirror. The log has the traceback. The loop retries."
