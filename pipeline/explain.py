"""A staged range and its topic's cleanup policy in, the range with the cause of its gaps out."""

from __future__ import annotations

from dataclasses import replace

from schemas.staging.segment import ANY, UNCOMPACTED, Segment


def explained(segment: Segment, cleanup_policy: str | None) -> Segment:
    """Return *segment* with what is known of the offsets that hold no record.

    *cleanup_policy* is Kafka's setting of that name, such as `compact,delete`, asked for after
    the range was read; None: it was not told, so nothing is ruled out.
    """
    if not segment.gaps:
        return segment
    is_uncompacted = cleanup_policy is not None and "compact" not in cleanup_policy
    return replace(segment, gap_cause=UNCOMPACTED if is_uncompacted else ANY)
