"""What the loops say of themselves in the lake: `status` in another process reads it."""

from __future__ import annotations

from collections.abc import Mapping

from deltamirror.monitoring.metrics_state import Board
from resources.coordination.status_file import Bulletin
from schemas.errors import DeltamirrorError
from schemas.kafka.partition import TopicPartition


class Bulletins:
    """Posts how duties are, with the address at which *board* can be read."""

    def __init__(self, bulletin: Bulletin, board: Board) -> None:
        self._bulletin, self._board = bulletin, board

    def post(
        self,
        duty: str,
        state: str,
        error: DeltamirrorError | None,
        troubles: Mapping[TopicPartition, DeltamirrorError],
    ) -> None:
        """Say that *duty* is in *state*, for *error*, and which partitions are left out."""
        told = str(error) if error else None
        self._bulletin.post(duty, state, told, _told(troubles), self._board.address)


def _told(troubles: Mapping[TopicPartition, DeltamirrorError]) -> list[dict[str, object]]:
    """Return *troubles* as a bulletin holds them."""
    return [
        {
            "topic": p.topic,
            "partition": p.partition,
            "type": error.kind,
            "message": str(error),
            "hint": error.hint,
        }
        for p, error in sorted(troubles.items())
    ]
