"""What the loops say of themselves in the lake: `status` in another process reads it."""

from __future__ import annotations

from collections.abc import Mapping

from deltamirror.monitoring.metrics_state import MetricsState
from resources.coordination.status_file import StatusFile
from schemas.errors import DeltamirrorError
from schemas.kafka.partition import TopicPartition


class StatusFiles:
    """Posts how duties are, with the address at which *metrics_state* can be read."""

    def __init__(self, bulletin: StatusFile, metrics_state: MetricsState) -> None:
        self._status_file, self._metrics_state = bulletin, metrics_state

    def post(
        self,
        role: str,
        state: str,
        error: DeltamirrorError | None,
        partition_errors: Mapping[TopicPartition, DeltamirrorError],
    ) -> None:
        """Say that *role* is in *state*, for *error*, and which partitions are left out."""
        told = str(error) if error else None
        self._status_file.post(
            role, state, told, _error_rows(partition_errors), self._metrics_state.address
        )


def _error_rows(
    partition_errors: Mapping[TopicPartition, DeltamirrorError],
) -> list[dict[str, object]]:
    """Return *partition_errors* as a bulletin holds them."""
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
