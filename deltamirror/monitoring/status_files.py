"""Status files in the lake, which the loops write and `deltamirror status` reads."""

from __future__ import annotations

from collections.abc import Mapping

from deltamirror.listener import Listener
from deltamirror.monitoring.metrics_state import MetricsState
from resources.coordination.status_file import StatusFile
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.kafka.partition import TopicPartition


class StatusFiles(Listener):
    """Listener that writes each loop's state, with the URL at which *metrics_state* is served."""

    def __init__(self, status_file: StatusFile, metrics_state: MetricsState) -> None:
        self._status_file, self._metrics_state = status_file, metrics_state

    def tick_succeeded(
        self, role: str, errors: Mapping[TopicPartition, PartitionError], *, is_paused: bool = False
    ) -> None:
        address = self._metrics_state.address
        self._status_file.post(role, "running", None, error_rows(errors), address)

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        self._status_file.post(role, "failed", str(error), [], self._metrics_state.address)

    def loop_stopped(
        self,
        role: str,
        error: DeltamirrorError | None,
        errors: Mapping[TopicPartition, PartitionError],
    ) -> None:
        state, text = ("failed", str(error)) if error else ("stopped", None)
        address = self._metrics_state.address
        self._status_file.post(role, state, text, error_rows(errors), address)


def error_rows(errors: Mapping[TopicPartition, DeltamirrorError]) -> list[dict[str, object]]:
    """Return *errors* as status files and `plan` show them, in order of the partitions."""
    return [
        {
            "topic": p.topic,
            "partition": p.partition,
            "type": error.kind,
            "message": str(error),
            "hint": error.hint,
        }
        for p, error in sorted(errors.items())
    ]
