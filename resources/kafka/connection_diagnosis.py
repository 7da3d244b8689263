"""Map librdkafka's texts about a failed connection to causes.

librdkafka reports the same text for every certificate that it does not accept, and no text at all
if a plaintext client meets a TLS listener.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from confluent_kafka import KafkaError

from schemas.errors.environment import LoginRefusedError, TlsFailedError, UnreachableError

OFFERED_MECHANISMS = re.compile(r"supported mechanisms: (\S+)")
MECHANISM_NOT_OFFERED, LOGIN_NOT_EXPECTED = (
    "Unsupported SASL mechanism",
    "not valid in current SASL state",
)
TOKEN_ERROR = "OAUTHBEARER token"
NO_ENDPOINT = ("connect", "resolve", "timed out", "Timeout")  # from libcurl's errors

# TLS alerts of a broker that rejects or misses a client's certificate.
CLIENT_CERTIFICATE = (
    "bad certificate",
    "certificate required",
    "unknown ca",
    "alert certificate",
)
CERTIFICATE_REFUSED = "certificate verify failed"
NO_TLS = ("PLAINTEXT broker listener", "SSL connection closed by peer", "wrong version number")
ADDRESS = re.compile(r"\w+://([^/\s]+)/")  # `ssl://host:9093/bootstrap: ...`


class Diagnosis(NamedTuple):
    """The type of the error, and the reason that completes its message."""

    kind: type[UnreachableError]
    reason: str


def diagnose(settings: Mapping[str, Any], reported: KafkaError) -> Diagnosis | None:
    """Return the cause of librdkafka's error *reported*, for a client with *settings*.

    Return None if the error itself is all that is known. The result contains neither passwords nor
    tokens.
    """
    text, protocol = reported.str(), settings.get("security.protocol", "PLAINTEXT")
    if reported.code() == KafkaError._AUTHENTICATION:
        return Diagnosis(LoginRefusedError, _login_failure(settings, text))
    if reported.code() == KafkaError._ALL_BROKERS_DOWN and not protocol.endswith("SSL"):
        why = "it closes every connection: its listener may require TLS"
        return Diagnosis(UnreachableError, f"{why} (security.protocol is {protocol})")
    if "SSL" not in text:
        return None
    if any(word in text for word in CLIENT_CERTIFICATE):
        return Diagnosis(
            TlsFailedError, "it rejects the client's certificate, or the client sent none"
        )
    found = ADDRESS.search(text)
    address = found[1] if found else settings.get("bootstrap.servers", "")
    if CERTIFICATE_REFUSED in text:
        why = f"the certificate of {address} has expired, is for another host, or is signed by no "
        return Diagnosis(TlsFailedError, f"{why}authority of the truststore")
    if any(word in text for word in NO_TLS):
        why = f"{address} closes the TLS handshake: its listener may not speak TLS"
        return Diagnosis(TlsFailedError, f"{why} (security.protocol is {protocol})")
    return None


def _login_failure(settings: Mapping[str, Any], reported: str) -> str:
    mechanism = settings.get("sasl.mechanism")
    if TOKEN_ERROR in reported:
        # The endpoint's own answer may repeat a secret, so it is not shown.
        endpoint = urlsplit(str(settings.get("sasl.oauthbearer.token.endpoint.url", "")))
        where = f"{endpoint.scheme}://{endpoint.hostname}:{endpoint.port or ''}{endpoint.path}"
        if any(word in reported for word in NO_ENDPOINT):
            return f"the token endpoint {where} does not answer"
        return f"the token endpoint {where} gave no token for this client id and secret"
    if MECHANISM_NOT_OFFERED in reported:
        offered = OFFERED_MECHANISMS.search(reported)
        return f"it does not offer {mechanism}, but {offered[1] if offered else 'others'}"
    if LOGIN_NOT_EXPECTED in reported:
        return f"its listener expects no login, but the configuration has one with {mechanism}"
    return f"the user is unknown to {mechanism}, or the password is wrong"
