"""What does not fit between the file and a secured cluster is told in one sentence, and soon."""

import json

import pytest

from tests.support.certificates import STORE_PASSWORD, Authority
from tests.support.cli import run
from tests.support.secured_broker import MODULES, PASSWORD, log_in, secured_brokers, token_endpoint
from tests.support.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.story]

WRONG = "hunter2"
SASL, TLS = {"security.protocol": "SASL_PLAINTEXT"}, {"security.protocol": "SSL"}
OAUTH = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId=mirror clientSecret="


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with secured_brokers(tmp_path_factory.mktemp("secured"), "us-east") as made:
        yield made


@pytest.fixture(scope="module")
def endpoint():
    with token_endpoint("sekrit") as url:
        yield url


@pytest.fixture
def fails(secured, endpoint, tmp_path):
    """Run against *listener* of us-east with what the file says; return the error's JSON."""
    certificates, (broker,) = secured

    def run_it(listener, java, code=1):
        java = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.authority.certificate),
            "sasl.oauthbearer.token.endpoint.url": endpoint,
            **java,
        }
        extra = {f"us-east.{key}": value for key, value in java.items()}
        at = broker.bootstrap_servers if listener == "PLAINTEXT" else broker.at(listener)
        extra["us-east.bootstrap.servers"] = at
        world = World(tmp_path, broker, broker, ["orders"], extra)
        path = ["--config", str(world.path)]
        done = run("run", "--until-caught-up", "--format", "json", *path, code=code)
        assert WRONG not in done.output
        assert "Traceback" not in done.output
        error = json.loads(done.stdout)["error"]
        assert "us-east" in error["message"]
        assert error["hint"]
        return error

    return run_it


@pytest.mark.parametrize(
    ("listener", "java", "why"),
    [
        pytest.param("SASL", SASL | log_in("PLAIN", password=WRONG), "wrong", id="PLAIN"),
        pytest.param(
            "SASL", SASL | log_in("SCRAM-SHA-512", user="nobody"), "unknown", id="unknown user"
        ),
        pytest.param(
            "SASL",
            {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH}{WRONG};"},
            "gave no token",
            id="wrong client secret",
        ),
        pytest.param(
            "SASL",
            {
                **SASL,
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f"{OAUTH}{WRONG};",
                "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/token",
            },
            "127.0.0.1:9/token does not answer",
            id="no token endpoint",
        ),
        pytest.param(
            "SASLTLS",
            {"security.protocol": "SASL_SSL", **log_in("SCRAM-SHA-256")},
            "does not offer SCRAM-SHA-256, but PLAIN,SCRAM-SHA-512",
            id="mechanism not enabled",
        ),
        pytest.param("PLAINTEXT", SASL | log_in("PLAIN"), "no login", id="no login asked for"),
    ],
)
def test_a_refused_login_is_reported_with_its_cause(fails, listener, java, why):
    error = fails(listener, java)

    assert error["type"] == "LoginRefusedError"
    assert why in error["message"]


REFUSED = "has expired, is for another host, or is signed by no authority of the truststore"


@pytest.mark.parametrize(
    ("listener", "java", "error_type", "why"),
    [
        pytest.param("EXPIRED", TLS, "TlsFailedError", REFUSED, id="expired"),
        pytest.param("ELSEWHERE", TLS, "TlsFailedError", REFUSED, id="other host"),
        pytest.param(
            "MUTUAL", TLS, "TlsFailedError", "the client's certificate", id="no client certificate"
        ),
        pytest.param(
            "TLS",
            {"security.protocol": "PLAINTEXT"},
            "UnreachableError",
            "its listener may require TLS (security.protocol is PLAINTEXT)",
            id="a plaintext client at a TLS listener",
        ),
        pytest.param(
            "SASL",
            TLS,
            "TlsFailedError",
            "its listener may not speak TLS (security.protocol is SSL)",
            id="a TLS client at a SASL listener",
        ),
    ],
)
def test_a_failed_tls_handshake_is_reported_with_its_cause(fails, listener, java, error_type, why):
    error = fails(listener, java)

    assert error["type"] == error_type
    assert why in error["message"]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


def test_a_broker_whose_ca_is_not_in_the_truststore_is_not_trusted(fails, stranger):
    error = fails("TLS", {**TLS, "ssl.truststore.location": str(stranger.certificate)})

    assert error["type"] == "TlsFailedError"
    assert REFUSED in error["message"]


def test_a_client_whose_ca_the_broker_does_not_know_is_rejected(fails, stranger):
    store = stranger.identity("mirror").pkcs12()
    java = {"ssl.keystore.location": str(store), "ssl.keystore.password": STORE_PASSWORD}

    error = fails("MUTUAL", TLS | java)

    assert error["type"] == "TlsFailedError"
    assert "the client's certificate" in error["message"]


def test_a_key_with_a_wrong_password_ends_every_command_with_2(fails, stranger, tmp_path):
    client = stranger.identity("mirror")
    store = tmp_path / "client.pem"
    store.write_text(client.certificate.read_text() + client.encrypted_key(PASSWORD))
    java = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}

    error = fails("MUTUAL", TLS | java | {"ssl.key.password": WRONG}, code=2)

    assert error["type"] == "ClientSettingsError"
