"""Why a cluster that is there does not let a client in, or do what it asks."""

from __future__ import annotations

from schemas.errors.base import DeltamirrorError, PartitionError, RequestRefusedError
from schemas.kafka.acl import Permission


class UnreachableError(DeltamirrorError):
    """A cluster did not answer."""

    summary = "does not answer"
    hint = (
        "Check that it runs, that bootstrap.servers names it and that security.protocol is that of "
        "its listener; the next run goes on from here."
    )

    def __init__(self, alias: str, servers: str, reason: str) -> None:
        super().__init__(f"cluster {alias} ({servers}) {self.summary}: {reason}")


class JavaMissingError(DeltamirrorError):
    """No Java, or one that is too old for Spark and Kafka's brokers."""

    hint = "Install a Java runtime, version 17 or newer, and set JAVA_HOME or PATH to it."

    def __init__(self, found: str) -> None:
        super().__init__(f"Java 17 or newer is needed: {found}")


class DownloadFailedError(DeltamirrorError):
    """Jars could not be fetched from the Maven repository."""

    hint = (
        "Check the network and run `make setup` again; a mirror is read from ~/.m2/settings.xml "
        "or the environment variable DEFAULT_ARTIFACT_REPOSITORY."
    )

    def __init__(self, what: str, repository: str, why: str) -> None:
        super().__init__(f"{what} could not be fetched from {repository}: {why}")


class BrokerStartError(DeltamirrorError):
    """A local Kafka broker did not come up."""

    def __init__(self, name: str, log: object, why: str) -> None:
        super().__init__(f"broker {name} did not start: {why}")
        self.hint = f"The whole log is in {log}."


class BrokerStopError(DeltamirrorError):
    """A local Kafka broker is still there after it was ended."""

    hint = "End the process by hand; its data stays as it is."

    def __init__(self, name: str, pid: int, waited_seconds: float) -> None:
        super().__init__(f"broker {name} (pid {pid}) did not end within {waited_seconds:.0f} s")


class WorkerDiedError(DeltamirrorError):
    """A process that reads for a comparison is gone."""

    hint = "Somebody or the system, out of memory, ended it: the next `verify` goes on from there."

    def __init__(self) -> None:
        super().__init__("a process that reads for verify has died")


class LoginRefusedError(UnreachableError):
    """A cluster wants another login than the one it was given, or none."""

    summary = "does not let deltamirror in"
    hint = (
        "Correct the cluster's security.protocol, sasl.mechanism or sasl.jaas.config in the file; "
        "docs/security.md says what each needs."
    )


class TlsFailedError(UnreachableError):
    """A cluster and its client do not come to speak TLS, or one does not trust the other."""

    summary = "does not fit its TLS settings"
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


class SparkFailedError(DeltamirrorError):
    """Spark did not start, or a worker of it died."""

    hint = "The loop tries again; with DELTAMIRROR_DEBUG=1 the whole report is shown."
