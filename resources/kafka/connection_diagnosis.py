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

LOOK_S = 2.0
"""How long the look may take; it is made once while a cluster stays silent."""

OFFERED = re.compile(r"supported mechanisms: (\S+)")
NOT_OFFERED, NOT_ASKED = "Unsupported SASL mechanism", "not valid in current SASL state"
NO_TOKEN = "OAUTHBEARER token"
NOBODY_THERE = ("connect", "resolve", "timed out", "Timeout")  # in libcurl's words

# How a broker says in TLS that it does not take a client's certificate, or wants one.
ABOUT_THE_CLIENT = ("bad certificate", "certificate required", "unknown ca", "alert certificate")

# Whom librdkafka speaks of: `ssl://host:9093/bootstrap: ...`.
AT = re.compile(r"(?:\w+://)?([^/\s]+):(\d+)/")

# OpenSSL's numbers of what is wrong with a certificate (X509_V_ERR_*).
NOT_YET, EXPIRED, OTHER_NAMES = 9, 10, (62, 64)


class Finding(NamedTuple):
    """The kind of error, and the reason that completes its sentence."""

    kind: type[UnreachableError]
    reason: str


def find_out(settings: Mapping[str, Any], told: KafkaError) -> Finding | None:
    """Return why a client with *settings* gets no answer, which librdkafka *told* in its way.

    None: no more than that is known. Takes at most some LOOK_S seconds. Neither a password nor a
    token is in it.
    """
    if told.code() == KafkaError._AUTHENTICATION:
        return Finding(LoginRefusedError, _why_no_login(settings, told.str()))
    at = _at(settings, told.str())
    if at is None:
        return None
    protocol = str(settings.get("security.protocol", "PLAINTEXT"))
    if not protocol.endswith("SSL"):
        return _is_tls(protocol, *at)
    return _why_no_tls(settings, protocol, told.str(), *at) if "SSL" in told.str() else None


def _why_no_login(settings: Mapping[str, Any], told: str) -> str:
    mechanism = settings.get("sasl.mechanism")
    if NO_TOKEN in told:
        # Not what the endpoint answered: that is somebody else's text, and may repeat a secret.
        endpoint = urlsplit(str(settings.get("sasl.oauthbearer.token.endpoint.url", "")))
        where = f"{endpoint.scheme}://{endpoint.hostname}:{endpoint.port or ''}{endpoint.path}"
        if any(word in told for word in NOBODY_THERE):
            return f"the token endpoint {where} does not answer"
        return f"the token endpoint {where} gave no token for this client id and secret"
    if NOT_OFFERED in told:
        offered = OFFERED.search(told)
        return f"it does not offer {mechanism}, but {offered[1] if offered else 'others'}"
    if NOT_ASKED in told:
        return f"its listener asks for no login, and the file has one with {mechanism}"
    return f"the user is unknown to {mechanism}, or the password is wrong"


def _why_no_tls(
    settings: Mapping[str, Any], protocol: str, told: str, host: str, port: int
) -> Finding | None:
    if any(word in told for word in ABOUT_THE_CLIENT):
        return Finding(TlsFailedError, "it does not take the client's certificate, or misses one")
    try:
        _shake_hands(_context(settings), host, port)
    except ssl.SSLCertVerificationError as failure:
        return Finding(TlsFailedError, _about(failure, host))
    except (ssl.SSLError, ConnectionResetError):
        why = f"it does not speak TLS at {host}:{port}, and security.protocol is {protocol}"
        return Finding(TlsFailedError, why)
    except OSError:  # it is away by now
        return None
    return None


def _about(failure: ssl.SSLCertVerificationError, host: str) -> str:
    """Return what is wrong with the certificate that *host* showed."""
    if failure.verify_code == EXPIRED:
        return "its certificate has expired"
    if failure.verify_code == NOT_YET:
        return "its certificate is not valid yet"
    if failure.verify_code in OTHER_NAMES:
        return f"its certificate is not for {host}"
    return "its certificate is signed by nobody whom the truststore names"


def _is_tls(protocol: str, host: str, port: int) -> Finding | None:
    """Return that the cluster speaks TLS, where it does and a client with *protocol* does not."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _shake_hands(context, host, port)
    except OSError:
        return None
    why = f"it speaks TLS at {host}:{port}, and security.protocol is {protocol}"
    return Finding(TlsFailedError, why)


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context that trusts whom the client trusts."""
    context = ssl.create_default_context(
        cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
    )
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context


def _shake_hands(context: ssl.SSLContext, host: str, port: int) -> None:
    """Begin TLS with *host*. Raises OSError (as ssl.SSLError is) where that is not to be had."""
    with (
        socket.create_connection((host, port), LOOK_S) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass


def _at(settings: Mapping[str, Any], told: str) -> tuple[str, int] | None:
    """Return host and port that librdkafka *told* of, else the first bootstrap server's."""
    first = str(settings.get("bootstrap.servers", "")).split(",")[0]
    found = AT.search(told) or AT.match(f"{first.strip()}/")
    return (found[1].strip("[]"), int(found[2])) if found else None
