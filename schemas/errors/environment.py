"""Errors of connections, permissions, Java, Spark, and the demo's local brokers."""

from __future__ import annotations

from schemas.errors.base import DeltamirrorError, PartitionError, RequestRefusedError
from schemas.kafka.acl import Permission


class UnreachableError(DeltamirrorError):
    """A cluster does not answer. *servers* are its addresses, or the client that got no answer."""

    message = "cluster {alias} ({servers}) does not answer: {reason}"
    hint = (
        "Check that the cluster runs, that bootstrap.servers names it and that security.protocol "
        "fits its listener. The next run continues from here."
    )


class LoginRefusedError(UnreachableError):
    """A cluster refuses the login, or requires one and got none."""

    message = "cluster {alias} ({servers}) refuses deltamirror's login: {reason}"
    hint = (
        "Correct the cluster's security.protocol, sasl.mechanism or sasl.jaas.config in the file. "
        "docs/security.md lists the keys of each login."
    )


class TlsFailedError(UnreachableError):
    """The TLS handshake fails: one side does not use TLS, or does not trust the other."""

    message = "cluster {alias} ({servers}) does not fit its TLS settings: {reason}"
    hint = (
        "Correct the cluster's security.protocol or ssl.* in the file, or the broker's "
        "certificate. docs/security.md lists the keys of TLS."
    )


class PermissionMissingError(RequestRefusedError, PartitionError):
    """A cluster's authorizer denies deltamirror's user an operation that deltamirror needs."""

    message = "cluster {alias} refused to {action}: deltamirror's user lacks {permission} ({code})"
    hint = (
        "Grant it: `kafka-acls.sh --bootstrap-server SERVERS --add --allow-principal User:NAME "
        "{permission.arguments}`. docs/security.md lists all permissions that are needed."
    )

    def __init__(self, alias: str, action: str, permission: Permission) -> None:
        code = f"{permission.resource.replace('-', '_').upper()}_AUTHORIZATION_FAILED"
        super().__init__(alias, action=action, permission=permission, code=code)


class JavaMissingError(DeltamirrorError):
    """There is no Java, or it is too old for Spark and Kafka's brokers."""

    message = "Java 17 or newer is needed: {found}"
    hint = "Install a Java runtime, version 17 or newer, and set JAVA_HOME or PATH to it."


class DownloadFailedError(DeltamirrorError):
    """Jars could not be downloaded from the Maven repository."""

    message = "{jars} could not be fetched from {repository}: {reason}"
    hint = (
        "Check the network and run `make setup` again. Set a mirror in ~/.m2/settings.xml or in "
        "the environment variable DEFAULT_ARTIFACT_REPOSITORY."
    )


class BrokerStartError(DeltamirrorError):
    """A local Kafka broker did not start."""

    message = "broker {name} did not start: {reason}"
    hint = "Read the whole log in {log}."


class BrokerStopError(DeltamirrorError):
    """A local Kafka broker still runs after it was stopped."""

    message = "broker {name} (pid {pid}) did not end within {waited_seconds:.0f} s"
    hint = "End the process by hand. Its data stays as it is."


class WorkerDiedError(DeltamirrorError):
    """A process that reads for a comparison has ended early."""

    message = "a process that reads for verify has died"
    hint = "A user or the system (out of memory) ended it. Run `verify` again: it resumes there."


class SparkFailedError(DeltamirrorError):
    """Spark did not start, or a Spark task failed."""

    hint = "The loop retries. Set DELTAMIRROR_DEBUG=1 to see the traceback."
