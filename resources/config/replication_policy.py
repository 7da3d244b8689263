"""The naming rule that a file asks for: one of MirrorMaker 2's, or a Python class of the user's."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable

from schemas.config.flow import Flow
from schemas.errors import RefusedKeyError
from schemas.mm2.replication_policy import DefaultPolicy, IdentityPolicy, ReplicationPolicy

POLICY_CLASS_KEY = "replication.policy.class"
POLICY_MEMBERS = sorted(name for name in vars(ReplicationPolicy) if not name.startswith("_"))


def create_policy(
    name: str, flow: Flow, separator: str, internal_separator: str
) -> ReplicationPolicy:
    """Return the rule called *name*: a class of MirrorMaker 2's, or `package.module:Class`.

    A class of the user's own is called with both separators and the source's alias by name, as
    MirrorMaker 2 calls `configure` (ReplicationPolicy, KIP-382). Raises RefusedKeyError where it
    cannot be loaded or lacks something that is asked of a rule.
    """
    if ":" in name:
        return _create_custom(name.strip(), flow, separator, internal_separator)
    if name.rpartition(".")[2] == "IdentityReplicationPolicy":
        return IdentityPolicy(separator, internal_separator, flow.source)
    return DefaultPolicy(separator, internal_separator)


def _create_custom(
    path: str, flow: Flow, separator: str, internal_separator: str
) -> ReplicationPolicy:
    factory = _import_class(path)
    try:
        policy: ReplicationPolicy = factory(
            separator=separator, internal_separator=internal_separator, source_alias=flow.source
        )
        # It travels to Spark's workers with the flow.
        pickle.dumps(policy)
    except Exception as error:
        # The class is the user's: whatever it raises is about the file.
        raise RefusedKeyError(
            POLICY_CLASS_KEY, reason=f"{path} cannot be made: {_error_text(error)}"
        ) from error
    missing = [each for each in POLICY_MEMBERS if not hasattr(policy, each)]
    if missing:
        raise RefusedKeyError(POLICY_CLASS_KEY, reason=f"{path} has no {', '.join(missing)}")
    return policy


def _import_class(path: str) -> Callable[..., ReplicationPolicy]:
    module, _, name = path.partition(":")
    try:
        found: Callable[..., ReplicationPolicy] = getattr(importlib.import_module(module), name)
    except Exception as error:
        why = (
            f"{path} cannot be imported: {_error_text(error)} (PYTHONPATH says where Python looks)"
        )
        raise RefusedKeyError(POLICY_CLASS_KEY, reason=why) from error
    return found


def _error_text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
