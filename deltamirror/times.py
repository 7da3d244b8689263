"""Parse and format times of the command line and of run configs."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time_ms(text: str) -> int:
    """Return the time in *text* (ISO 8601, default UTC; or ms) in ms. Raises ValueError."""
    if text.isdigit():
        return int(text)
    try:
        # Python 3.10 does not read the Z that ISO 8601 ends UTC with.
        at = datetime.fromisoformat(text.removesuffix("Z"))
    except ValueError:
        raise ValueError(
            f"{text} is not a time: write 2026-01-31T12:00:00Z or milliseconds since 1970"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000)


def format_iso(at_ms: int) -> str:
    """Return the time *at_ms* (ms since 1970) in ISO 8601, UTC."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
