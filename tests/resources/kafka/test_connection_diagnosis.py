import pytest
from confluent_kafka import KafkaError

from resources.kafka.connection_diagnosis import diagnose
from schemas.errors.environment import LoginRefusedError, TlsFailedError, UnreachableError

AT = "ssl://kafka:9093/bootstrap: "
SSL, SCRAM = {"security.protocol": "SSL"}, {"sasl.mechanism": "SCRAM-SHA-256"}


@pytest.mark.parametrize(
    ("settings", "code", "text", "kind", "reason"),
    [
        pytest.param(
            *(SSL, KafkaError._SSL, f"{AT}SSL handshake failed: certificate verify failed: x"),
            *(TlsFailedError, "certificate of kafka:9093 has expired"),
            id="a certificate that is not accepted",
        ),
        pytest.param(
            *(SSL, KafkaError._TRANSPORT, f"{AT}SSL routines::ssl/tls alert bad certificate"),
            *(TlsFailedError, "rejects the client's certificate"),
            id="a client's certificate",
        ),
        pytest.param(
            SSL,
            KafkaError._TRANSPORT,
            f"{AT}Disconnected: SSL connection closed by peer (in state SSL_HANDSHAKE)",
            *(
                TlsFailedError,
                "kafka:9093 closes the TLS handshake: its listener may not speak TLS",
            ),
            id="TLS at a plaintext listener",
        ),
        pytest.param(
            *({}, KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
            *(UnreachableError, "may require TLS (security.protocol is PLAINTEXT)"),
            id="plaintext at a TLS listener",
        ),
        pytest.param(
            *(SCRAM, KafkaError._AUTHENTICATION, "Authentication failed"),
            *(LoginRefusedError, "the user is unknown to SCRAM-SHA-256, or the password is wrong"),
            id="a login",
        ),
    ],
)
def test_the_clients_text_is_mapped_to_a_reason(settings, code, text, kind, reason):
    finding = diagnose(settings, KafkaError(code, text))

    assert finding.kind is kind
    assert reason in finding.reason


@pytest.mark.parametrize("settings", [{}, SSL])
def test_a_text_that_says_enough_has_no_other_reason(settings):
    text = "kafka:9093/bootstrap: Connect to ipv4#127.0.0.1:9093 failed: Connection refused"

    finding = diagnose(settings, KafkaError(KafkaError._TRANSPORT, text))

    assert finding == (UnreachableError, f"{text} (_TRANSPORT)")
