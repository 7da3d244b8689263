"""Why a cluster that is there does not let a client in, or do what it asks."""

from __future__ import annotations

from schemas.errors.base import PartitionError
from schemas.errors.machine import UnreachableError
from schemas.errors.outcome import RequestRefusedError
from schemas.kafka.acl import Permission


class LoginRefusedError(UnreachableError):
    """A cluster wants another login than the one it was given, or none."""

    says = "does not let deltamirror in"
    hint = (
        "Correct the cluster's security.protocol, sasl.mechanism or sasl.jaas.config in the file; "
        "docs/security.md says what each needs."
    )


class TlsFailedError(UnreachableError):
    """A cluster and its client do not come to speak TLS, or one does not trust the other."""

    says = "does not fit its TLS settings"
    hint = (
        "Correct the cluster's security.protocol or ssl.* in the file, or the broker's "
        "certificate; docs/security.md says what each needs."
    )


class PermissionMissingError(RequestRefusedError, PartitionError):
    """A cluster's authorizer does not let deltamirror's user do something that it needs."""

    def __init__(self, alias: str, what: str, permission: Permission) -> None:
        code = f"{permission.resource.replace('-', '_').upper()}_AUTHORIZATION_FAILED"
        super().__init__(alias, what, code, f"deltamirror's user lacks {permission}")
        self.permission = permission
        self.hint = (
            "Grant it: `kafka-acls.sh --bootstrap-server SERVERS --add --allow-principal User:NAME "
            f"{permission.arguments}`; docs/security.md lists all that is needed."
        )
