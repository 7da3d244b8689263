"""Java client properties: what librdkafka calls them, or why they do nothing here."""

from __future__ import annotations


def is_connection_key(name: str) -> bool:
    """Return whether *name* says how to connect, so that it holds for all clients of a cluster."""
    return name in ("bootstrap.servers", "security.protocol") or name.startswith(("ssl.", "sasl."))
