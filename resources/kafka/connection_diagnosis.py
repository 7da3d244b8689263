"""Why a client and a cluster do not come together: librdkafka's words, and a look of our own.

librdkafka says the same of every certificate that it does not trust, and nothing at all where one
side speaks TLS and the other does not. A TLS handshake, made once more from here, tells which.
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
"""How long the look may take; it is made once while a cluster stays silent."""

OFFERED_MECHANISMS = re.compile(r"supported mechanisms: (\S+)")
MECHANISM_NOT_OFFERED, LOGIN_NOT_EXPECTED = (
    "Unsupported SASL mechanism",
    "not valid in current SASL state",
)
TOKEN_ERROR = "OAUTHBEARER token"
ENDPOINT_UNREACHABLE = ("connect", "resolve", "timed out", "Timeout")  # in libcurl's words

# How a broker says in TLS that it does not take a client's certificate, or wants one.
CLIENT_CERTIFICATE_ALERTS = (
    "bad certificate",
    "certificate required",
    "unknown ca",
    "alert certificate",
)

# Whom librdkafka speaks of: `ssl://host:9093/bootstrap: ...`.
BROKER_ADDRESS = re.compile(r"(?:\w+://)?([^/\s]+):(\d+)/")

# OpenSSL's numbers of what is wrong with a certificate (X509_V_ERR_*).
CERTIFICATE_NOT_YET_VALID, CERTIFICATE_EXPIRED, CERTIFICATE_NAME_MISMATCH = 9, 10, (62, 64)


class Diagnosis(NamedTuple):
    """The kind of error, and the reason that completes its sentence."""

    kind: type[UnreachableError]
    reason: str


def diagnose(settings: Mapping[str, Any], reported: KafkaError) -> Diagnosis | None:
    """Return why a client with *settings* gets no answer, which librdkafka *reported* in its way.

    None: no more than that is known. Takes at most some HANDSHAKE_TIMEOUT_S seconds. Neither a
    password nor a token is in it.
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
        # Not what the endpoint answered: that is somebody else's text, and may repeat a secret.
        endpoint = urlsplit(str(settings.get("sasl.oauthbearer.token.endpoint.url", "")))
        where = f"{endpoint.scheme}://{endpoint.hostname}:{endpoint.port or ''}{endpoint.path}"
        if any(word in reported for word in ENDPOINT_UNREACHABLE):
            return f"the token endpoint {where} does not answer"
        return f"the token endpoint {where} gave no token for this client id and secret"
    if MECHANISM_NOT_OFFERED in reported:
        offered = OFFERED_MECHANISMS.search(reported)
        return f"it does not offer {mechanism}, but {offered[1] if offered else 'others'}"
    if LOGIN_NOT_EXPECTED in reported:
        return f"its listener asks for no login, and the file has one with {mechanism}"
    return f"the user is unknown to {mechanism}, or the password is wrong"


def _tls_failure(
    settings: Mapping[str, Any], protocol: str, reported: str, host: str, port: int
) -> Diagnosis | None:
    if any(word in reported for word in CLIENT_CERTIFICATE_ALERTS):
        return Diagnosis(TlsFailedError, "it does not take the client's certificate, or misses one")
    try:
        _handshake(_ssl_context(settings), host, port)
    except ssl.SSLCertVerificationError as failure:
        return Diagnosis(TlsFailedError, _certificate_problem(failure, host))
    except (ssl.SSLError, ConnectionResetError):
        why = f"it does not speak TLS at {host}:{port}, and security.protocol is {protocol}"
        return Diagnosis(TlsFailedError, why)
    except OSError:  # it is away by now
        return None
    return None


def _certificate_problem(failure: ssl.SSLCertVerificationError, host: str) -> str:
    """Return what is wrong with the certificate that *host* showed."""
    if failure.verify_code == CERTIFICATE_EXPIRED:
        return "its certificate has expired"
    if failure.verify_code == CERTIFICATE_NOT_YET_VALID:
        return "its certificate is not valid yet"
    if failure.verify_code in CERTIFICATE_NAME_MISMATCH:
        return f"its certificate is not for {host}"
    return "its certificate is signed by nobody whom the truststore names"


def _tls_expected(protocol: str, host: str, port: int) -> Diagnosis | None:
    """Return that the cluster speaks TLS, where it does and a client with *protocol* does not."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _handshake(context, host, port)
    except OSError:
        return None
    why = f"it speaks TLS at {host}:{port}, and security.protocol is {protocol}"
    return Diagnosis(TlsFailedError, why)


def _ssl_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context that trusts whom the client trusts."""
    context = ssl.create_default_context(
        cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
    )
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context


def _handshake(context: ssl.SSLContext, host: str, port: int) -> None:
    """Begin TLS with *host*. Raises OSError (as ssl.SSLError is) where that is not to be had."""
    with (
        socket.create_connection((host, port), HANDSHAKE_TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass


def _broker_address(settings: Mapping[str, Any], reported: str) -> tuple[str, int] | None:
    """Return host and port that librdkafka *reported* of, else the first bootstrap server's."""
    first = str(settings.get("bootstrap.servers", "")).split(",")[0]
    found = BROKER_ADDRESS.search(reported) or BROKER_ADDRESS.match(f"{first.strip()}/")
    return (found[1].strip("[]"), int(found[2])) if found else None
