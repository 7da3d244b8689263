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
ADDRESS = re.compile(r"\w+://([^/\s]+)/")  # `ssl://host:9093/bootstrap: ...`
NO_ENDPOINT = ("connect", "resolve", "timed out", "Timeout")  # from libcurl's errors

# TLS alerts of a broker that rejects or misses a client's certificate.
CLIENT_CERTIFICATE = ("bad certificate", "certificate required", "unknown ca", "alert certificate")
NO_TLS = ("PLAINTEXT broker listener", "SSL connection closed by peer", "wrong version number")


class Diagnosis(NamedTuple):
    """The type of the error, and the reason that completes its message."""

    kind: type[UnreachableError]
    reason: str


def diagnose(settings: Mapping[str, Any], reported: KafkaError) -> Diagnosis:
    """Return the cause of librdkafka's error *reported*, for a client with *settings*.

    It is the error itself if that is all that is known. The result contains neither passwords nor
    tokens.
    """
    text, protocol = reported.str(), settings.get("security.protocol", "PLAINTEXT")
    if reported.code() == KafkaError._AUTHENTICATION:
        return Diagnosis(LoginRefusedError, _login_failure(settings, text))
    if reported.code() == KafkaError._ALL_BROKERS_DOWN and not protocol.endswith("SSL"):
        why = "it closes every connection: its listener may require TLS"
        return Diagnosis(UnreachableError, f"{why} (security.protocol is {protocol})")
    if "SSL" in text:
        found = ADDRESS.search(text)
        address = found[1] if found else settings.get("bootstrap.servers", "")
        if any(word in text for word in CLIENT_CERTIFICATE):
            why = "it rejects the client's certificate, or the client sent none"
            return Diagnosis(TlsFailedError, why)
        if "certificate verify failed" in text:
            why = f"the certificate of {address} has expired, is for another host, or is signed by "
            return Diagnosis(TlsFailedError, f"{why}no authority of the truststore")
        if any(word in text for word in NO_TLS):
            why = f"{address} closes the TLS handshake: its listener may not speak TLS"
            return Diagnosis(TlsFailedError, f"{why} (security.protocol is {protocol})")
    return Diagnosis(UnreachableError, f"{text} ({reported.name()})")


def _login_failure(settings: Mapping[str, Any], text: str) -> str:
    mechanism = settings.get("sasl.mechanism")
    if "OAUTHBEARER token" in text:
        # The endpoint's own answer may repeat a secret, so it is not shown.
        endpoint = urlsplit(str(settings.get("sasl.oauthbearer.token.endpoint.url", "")))
        where = f"{endpoint.scheme}://{endpoint.hostname}:{endpoint.port or ''}{endpoint.path}"
        if any(word in text for word in NO_ENDPOINT):
            return f"the token endpoint {where} does not answer"
        return f"the token endpoint {where} gave no token for this client id and secret"
    if "Unsupported SASL mechanism" in text:
        offered = OFFERED_MECHANISMS.search(text)
        return f"it does not offer {mechanism}, but {offered[1] if offered else 'others'}"
    if "not valid in current SASL state" in text:
        return f"its listener expects no login, but the configuration has one with {mechanism}"
    return f"the user is unknown to {mechanism}, or the password is wrong"
