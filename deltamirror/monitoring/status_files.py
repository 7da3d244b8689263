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
        self,
        role: str,
        errors: Mapping[TopicPartition, PartitionError],
        *,
        is_paused: bool = False,
    ) -> None:
        """Write that the loop runs."""
        self._post(role, "running", None, errors)

    def tick_failed(self, role: str, error: DeltamirrorError) -> None:
        """Write that the last tick failed."""
        self._post(role, "failed", error, {})

    def loop_stopped(
        self,
        role: str,
        error: DeltamirrorError | None,
        errors: Mapping[TopicPartition, PartitionError],
    ) -> None:
        """Write that the loop has ended."""
        self._post(role, "failed" if error else "stopped", error, errors)

    def _post(
        self,
        role: str,
        state: str,
        error: DeltamirrorError | None,
        partition_errors: Mapping[TopicPartition, DeltamirrorError],
    ) -> None:
        text = str(error) if error else None
        self._status_file.post(
            role, state, text, _error_rows(partition_errors), self._metrics_state.address
        )


def _error_rows(
    partition_errors: Mapping[TopicPartition, DeltamirrorError],
) -> list[dict[str, object]]:
    """Return *partition_errors* as the rows of a status file."""
    return [
        {
            "topic": p.topic,
            "partition": p.partition,
            "type": error.kind,
            "message": str(error),
            "hint": error.hint,
        }
        for p, error in sorted(partition_errors.items())
    ]
