"""Why a cluster that is there does not let a client in, or do what it asks."""

from __future__ import annotations

from schemas.errors.machine import UnreachableError


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
