"""Create the replication policy of a file: one of MirrorMaker 2's, or a user's Python class."""

from __future__ import annotations

import importlib
import pickle

from schemas.config.flow import Flow
from schemas.errors.configuration import RefusedKeyError
from schemas.mm2.replication_policy import DefaultPolicy, IdentityPolicy, ReplicationPolicy

POLICY_CLASS_KEY = "replication.policy.class"
POLICY_MEMBERS = sorted(name for name in vars(ReplicationPolicy) if not name.startswith("_"))


def create_policy(
    name: str, flow: Flow, separator: str, internal_separator: str
) -> ReplicationPolicy:
    """Return the policy called *name*: a class of MirrorMaker 2, or `package.module:Class`.

    A user's class is called with both separators and the source's alias as keyword arguments, as
    MirrorMaker 2 calls `configure` (ReplicationPolicy, KIP-382). Raises RefusedKeyError if the
    class cannot be loaded or lacks a member of ReplicationPolicy.
    """
    if ":" in name:
        return _create_custom(name.strip(), flow, separator, internal_separator)
    if name.rpartition(".")[2] == "IdentityReplicationPolicy":
        return IdentityPolicy(separator, internal_separator, flow.source)
    return DefaultPolicy(separator, internal_separator)


def _create_custom(
    path: str, flow: Flow, separator: str, internal_separator: str
) -> ReplicationPolicy:
    module, _, name = path.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except Exception as error:
        why = f"{path} cannot be imported: {_error_text(error)} (PYTHONPATH lists module folders)"
        raise RefusedKeyError(POLICY_CLASS_KEY, reason=why) from error
    try:
        policy: ReplicationPolicy = factory(
            separator=separator, internal_separator=internal_separator, source_alias=flow.source
        )
        # Spark's workers receive it with the flow.
        pickle.dumps(policy)
    except Exception as error:  # any exception of a user's class is an error of the configuration
        why = f"{path} cannot be created: {_error_text(error)}"
        raise RefusedKeyError(POLICY_CLASS_KEY, reason=why) from error
    missing = [each for each in POLICY_MEMBERS if not hasattr(policy, each)]
    if missing:
        raise RefusedKeyError(POLICY_CLASS_KEY, reason=f"{path} has no {', '.join(missing)}")
    return policy


def _error_text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
