"""What a Connect worker reads from the file: there is none here, so it has no effect, and why."""

from __future__ import annotations

from schemas.config.keys import KeyCheck, KeyStatus

_PROGRESS = "No Connect worker: progress is committed with the records, in their transaction."
_STORAGE = "No Connect worker, no storage topics: the lake and the target's group keep all state."
_REST = "No REST server: processes share the work by leases."
_WORKERS = "No Connect cluster: processes share the work by leases."
_METRICS = "`deltamirror run` serves /metrics; there is no JMX here."

REASONS: dict[str, tuple[str, ...]] = {
    "Exactly once is always on.": ("exactly.once.source.support",),
    _PROGRESS: ("offset.flush.interval.ms", "offset.flush.timeout.ms"),
    _REST: (
        "dedicated.mode.enable.internal.rest", "listeners", "rest.advertised.host.name",
        "rest.advertised.port", "rest.advertised.listener", "rest.host.name", "rest.port",
        "rest.extension.classes", "rest.advertised.security.protocol", "ssl.client.auth",
        "access.control.allow.origin", "access.control.allow.methods",
        "response.http.headers.config", "admin.listeners",
    ),
    _WORKERS: (
        "group.id", "scheduled.rebalance.max.delay.ms", "session.timeout.ms",
        "heartbeat.interval.ms", "rebalance.timeout.ms", "connect.protocol",
        "inter.worker.key.generation.algorithm", "inter.worker.key.size",
        "inter.worker.key.ttl.ms", "inter.worker.signature.algorithm",
        "inter.worker.verification.algorithms", "topic.tracking.enable",
        "topic.tracking.allow.reset",
        "connector.client.config.override.policy", "plugin.path", "plugin.discovery",
    ),
    _METRICS: (
        "metric.reporters", "metrics.num.samples", "metrics.recording.level",
        "metrics.sample.window.ms", "auto.include.jmx.reporter",
    ),
}  # fmt: skip
PREFIXES = {
    "offset.storage.": _STORAGE,
    "config.storage.": _STORAGE,
    "status.storage.": _STORAGE,
    "key.converter.": "Records travel as bytes, untouched.",
    "value.converter.": "Records travel as bytes, untouched.",
    "header.converter.": "Records travel as bytes, untouched.",
    "topic.creation.": "Remote topics are made with `replication.factor` before records are sent.",
    "worker.": _WORKERS,
    "task.": "Shutting down ends the running transaction and waits for nothing else.",
    "metrics.context.": _METRICS,
    "listeners.https.": _REST,
    "admin.listeners.https.": _REST,
}
_BY_NAME = {name: reason for reason, names in REASONS.items() for name in names}


def worker_check(name: str) -> KeyCheck | None:
    """Return why *name* has no effect. None: a Connect worker does not know it either."""
    reason = _BY_NAME.get(name) or next(
        (why for prefix, why in PREFIXES.items() if name.startswith(prefix)), None
    )
    return KeyCheck(name, KeyStatus.NO_EFFECT, reason) if reason else None


def worker_names() -> tuple[str, ...]:
    """Return the names of all keys, families with a `*`."""
    return (*_BY_NAME, *(f"{prefix}*" for prefix in PREFIXES))
