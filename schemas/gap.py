"""Why offsets of a staged range hold no record: every word that `segments.gap_cause` may say.

A cause says what is known and no more. No client is told which offsets a marker takes or what
compaction removed; what a topic's cleanup policy rules out is known.
"""

from __future__ import annotations

UNCOMPACTED = "transaction markers or aborted"
"""The topic was not compacted when it was staged."""

ANY = "compacted, transaction markers or aborted"
"""The topic is compacted, or its settings were not told."""

ACCEPTED = "accepted"
"""How the cause of a gap ends that an operator accepted: its offsets are not read again."""

EXPIRED = f"expired, {ACCEPTED}"
RECREATED = f"re-created before it was staged, {ACCEPTED}"
DELETED = f"deleted before it was staged, {ACCEPTED}"
UNREADABLE = f"cannot be carried, {ACCEPTED}"
CUT = f"log cut, goes on as a new incarnation, {ACCEPTED}"
