"""Diagnose why a client cannot connect, from librdkafka's error and a TLS handshake.

librdkafka reports the same error for every certificate that it does not trust, and none if only one
side uses TLS. An additional TLS handshake from here finds the cause.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from confluent_kafka import KafkaError

from schemas.errors import LoginRefusedError, TlsFailedError, UnreachableError

HANDSHAKE_TIMEOUT_S = 2.0
"""Seconds for the handshake. It is tried once while a cluster does not answer."""

OFFERED_MECHANISMS = re.compile(r"supported mechanisms: (\S+)")
MECHANISM_NOT_OFFERED, LOGIN_NOT_EXPECTED = (
    "Unsupported SASL mechanism",
    "not valid in current SASL state",
)
TOKEN_ERROR = "OAUTHBEARER token"
ENDPOINT_UNREACHABLE = ("connect", "resolve", "timed out", "Timeout")  # from libcurl's errors

# TLS alerts of a broker that rejects or misses a client's certificate.
CLIENT_CERTIFICATE_ALERTS = (
    "bad certificate",
    "certificate required",
    "unknown ca",
    "alert certificate",
)

# The broker's address in librdkafka's errors: `ssl://host:9093/bootstrap: ...`.
BROKER_ADDRESS = re.compile(r"(?:\w+://)?([^/\s]+):(\d+)/")

# OpenSSL's numbers of certificate errors (X509_V_ERR_*).
CERTIFICATE_NOT_YET_VALID, CERTIFICATE_EXPIRED, CERTIFICATE_NAME_MISMATCH = 9, 10, (62, 64)


class Diagnosis(NamedTuple):
    """The error class, and the reason that completes its message."""

    kind: type[UnreachableError]
    reason: str


def diagnose(settings: Mapping[str, Any], reported: KafkaError) -> Diagnosis | None:
    """Return the cause of librdkafka's error *reported*, for a client with *settings*.

    Return None if the error itself is all that is known. Takes about HANDSHAKE_TIMEOUT_S at most.
    The result contains neither passwords nor tokens.
    """
    if reported.code() == KafkaError._AUTHENTICATION:
        return Diagnosis(LoginRefusedError, _login_failure(settings, reported.str()))
    at = _broker_address(settings, reported.str())
    if at is None:
        return None
    protocol = str(settings.get("security.protocol", "PLAINTEXT"))
    if not protocol.endswith("SSL"):
        return _tls_expected(protocol, *at)
    return (
        _tls_failure(settings, protocol, reported.str(), *at) if "SSL" in reported.str() else None
    )


def _login_failure(settings: Mapping[str, Any], reported: str) -> str:
    mechanism = settings.get("sasl.mechanism")
    if TOKEN_ERROR in reported:
        # Without the endpoint's answer, because it may repeat a secret.
        endpoint = urlsplit(str(settings.get("sasl.oauthbearer.token.endpoint.url", "")))
        where = f"{endpoint.scheme}://{endpoint.hostname}:{endpoint.port or ''}{endpoint.path}"
        if any(word in reported for word in ENDPOINT_UNREACHABLE):
            return f"the token endpoint {where} does not answer"
        return f"the token endpoint {where} gave no token for this client id and secret"
    if MECHANISM_NOT_OFFERED in reported:
        offered = OFFERED_MECHANISMS.search(reported)
        return f"it does not offer {mechanism}, but {offered[1] if offered else 'others'}"
    if LOGIN_NOT_EXPECTED in reported:
        return f"its listener expects no login, but the configuration has one with {mechanism}"
    return f"the user is unknown to {mechanism}, or the password is wrong"


def _tls_failure(
    settings: Mapping[str, Any], protocol: str, reported: str, host: str, port: int
) -> Diagnosis | None:
    if any(word in reported for word in CLIENT_CERTIFICATE_ALERTS):
        return Diagnosis(TlsFailedError, "it rejects the client's certificate, or requires one")
    try:
        _handshake(_ssl_context(settings), host, port)
    except ssl.SSLCertVerificationError as failure:
        return Diagnosis(TlsFailedError, _certificate_problem(failure, host))
    except (ssl.SSLError, ConnectionResetError):
        why = f"it does not use TLS at {host}:{port}, but security.protocol is {protocol}"
        return Diagnosis(TlsFailedError, why)
    except OSError:  # the broker is not reachable now
        return None
    return None


def _certificate_problem(failure: ssl.SSLCertVerificationError, host: str) -> str:
    """Return the problem of the certificate of *host*, as text."""
    if failure.verify_code == CERTIFICATE_EXPIRED:
        return "its certificate has expired"
    if failure.verify_code == CERTIFICATE_NOT_YET_VALID:
        return "its certificate is not valid yet"
    if failure.verify_code in CERTIFICATE_NAME_MISMATCH:
        return f"its certificate is not for {host}"
    return "its certificate is not signed by a CA of the truststore"


def _tls_expected(protocol: str, host: str, port: int) -> Diagnosis | None:
    """Return a diagnosis if the cluster uses TLS, which a client with *protocol* does not."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _handshake(context, host, port)
    except OSError:
        return None
    why = f"it uses TLS at {host}:{port}, but security.protocol is {protocol}"
    return Diagnosis(TlsFailedError, why)


def _ssl_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context that trusts the same CAs as the client."""
    context = ssl.create_default_context(
        cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
    )
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context


def _handshake(context: ssl.SSLContext, host: str, port: int) -> None:
    """Connect to *host* with TLS. Raises OSError, of which ssl.SSLError is a subclass."""
    with (
        socket.create_connection((host, port), HANDSHAKE_TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass


def _broker_address(settings: Mapping[str, Any], reported: str) -> tuple[str, int] | None:
    """Return host and port in librdkafka's error, or of the first bootstrap server."""
    first = str(settings.get("bootstrap.servers", "")).split(",")[0]
    found = BROKER_ADDRESS.search(reported) or BROKER_ADDRESS.match(f"{first.strip()}/")
    return (found[1].strip("[]"), int(found[2])) if found else None
