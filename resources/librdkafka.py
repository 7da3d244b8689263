"""Java client properties to librdkafka's."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.config import ClientSettings


def translate(role: str, java: Mapping[str, str]) -> ClientSettings:
    """Return librdkafka's settings for a client of the kind *role*."""
    return dict(java)
