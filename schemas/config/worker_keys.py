"""Keys that only a Connect worker reads. They have no effect here; each has its reason."""

from __future__ import annotations

from schemas.config.keys import KeyCheck, KeyStatus, keys_by_name

_STORAGE = (
    "There are no storage topics. The lake and the progress group on the target keep all state."
)
_REST = "There is no REST server. Processes divide the work by leases."
_WORKERS = "There is no Connect cluster. Processes divide the work by leases."
_METRICS = "There is no JMX here; `deltamirror run` serves /metrics."

REASONS = keys_by_name({
    "Exactly once is always on.": "exactly.once.source.support",
    "There is no Connect worker. Progress is committed in the records' transaction.": """
        offset.flush.interval.ms offset.flush.timeout.ms""",
    _REST: """
        dedicated.mode.enable.internal.rest listeners rest.advertised.host.name rest.advertised.port
        rest.advertised.listener rest.host.name rest.port rest.extension.classes
        rest.advertised.security.protocol ssl.client.auth access.control.allow.origin
        access.control.allow.methods response.http.headers.config admin.listeners""",
    _WORKERS: """
        group.id scheduled.rebalance.max.delay.ms session.timeout.ms heartbeat.interval.ms
        rebalance.timeout.ms connect.protocol inter.worker.key.generation.algorithm
        inter.worker.key.size inter.worker.key.ttl.ms inter.worker.signature.algorithm
        inter.worker.verification.algorithms topic.tracking.enable topic.tracking.allow.reset
        connector.client.config.override.policy plugin.path plugin.discovery""",
    _METRICS: """
        metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
        auto.include.jmx.reporter""",
})  # fmt: skip
PREFIXES = keys_by_name({
    _STORAGE: "offset.storage. config.storage. status.storage.",
    "Records are copied as bytes.": "key.converter. value.converter. header.converter.",
    "Remote topics are created with `replication.factor` before replay.": "topic.creation.",
    _WORKERS: "worker.",
    "A shutdown waits only for the running transaction.": "task.",
    _METRICS: "metrics.context.",
    _REST: "listeners.https. admin.listeners.https.",
})  # fmt: skip


def worker_check(name: str) -> KeyCheck | None:
    """Return why *name* has no effect; None if no Connect worker reads it."""
    reason = REASONS.get(name) or next(
        (why for prefix, why in PREFIXES.items() if name.startswith(prefix)), None
    )
    return KeyCheck(name, KeyStatus.NO_EFFECT, reason) if reason else None


def worker_names() -> tuple[str, ...]:
    """Return the names of all keys; families of keys end with `*`."""
    return (*REASONS, *(f"{prefix}*" for prefix in PREFIXES))
