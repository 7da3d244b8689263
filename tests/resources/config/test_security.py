import pytest
from confluent_kafka.admin import AdminClient

from resources.config.security import translate_security
from schemas.config.client_keys import (
    CONNECTION_KEYS,
    NO_EFFECT_CONNECTION_KEYS,
    REFUSED_CONNECTION_KEYS,
)
from schemas.config.keys import KeyStatus
from tests.support.certificates import STORE_PASSWORD, Authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
STORE, TRUST = "ssl.keystore.location", "ssl.truststore.location"
JWT = "org.apache.kafka.common.security.oauthbearer"
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
THERE = __file__  # a file that can be read
SASL = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}


def refused(java):
    return {
        n: r.note
        for n, r in translate_security(java).checks.items()
        if r.status is KeyStatus.REFUSED
    }


@pytest.mark.parametrize(
    ("java", "settings"),
    [
        pytest.param(
            {"security.protocol": "ssl"}, {"security.protocol": "SSL"}, id="any case of a protocol"
        ),
        pytest.param(
            {**SASL, "sasl.jaas.config": f'{PLAIN} required username="u" password="p w;";'},
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "u",
                "sasl.password": "p w;",
            },
            id="a user and a password",
        ),
        pytest.param(
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
                "sasl.jaas.config": f"{OAUTH} required clientId=i clientSecret=s extension_a=b;",
            },
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.extensions": "a=b",
            },
            id="OIDC in the login module",
        ),
        pytest.param(
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
                "sasl.oauthbearer.client.credentials.client.id": "i",
                "sasl.oauthbearer.client.credentials.client.secret": "s",
            },
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "s",
            },
            id="OIDC in keys of its own",
        ),
        pytest.param(
            {"ssl.truststore.type": "PEM", TRUST: THERE},
            {"ssl.ca.location": THERE},
            id="a truststore in PEM",
        ),
        pytest.param(
            {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "-----BEGIN"},
            {"ssl.ca.pem": "-----BEGIN"},
            id="certificates inline",
        ),
        pytest.param(
            {"ssl.keystore.type": "pem", STORE: THERE, "ssl.key.password": "p"},
            {
                "ssl.certificate.location": THERE,
                "ssl.key.location": THERE,
                "ssl.key.password": "p",
            },
            id="a keystore in PEM",
        ),
        pytest.param(
            {"ssl.keystore.certificate.chain": "CHAIN", "ssl.keystore.key": "KEY"},
            {"ssl.certificate.pem": "CHAIN", "ssl.key.pem": "KEY"},
            id="a key inline",
        ),
        pytest.param(
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
            id="no check of host names",
        ),
        pytest.param(
            {
                "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_256_CBC_SHA, "
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
            },
            {
                "ssl.cipher.suites": "AES256-SHA:ECDHE-RSA-AES128-GCM-SHA256:"
                "ECDHE-ECDSA-CHACHA20-POLY1305"
            },
            id="cipher suites by OpenSSL's names",
        ),
    ],
)
def test_security_settings_are_translated_to_librdkafkas(java, settings):
    security = translate_security(java)

    assert security.settings == settings
    assert security.checks.keys() == java.keys()
    assert refused(java) == {}


@pytest.mark.parametrize(
    ("java", "key", "what_to_do"),
    [
        ({"security.protocol": "TLS"}, "security.protocol", "SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism", "Kerberos"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "SCRAM"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanism", "OAUTHBEARER"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url", "OIDC"),
        ({TRUST: "/no.jks"}, TRUST, "/no.jks cannot be read"),
        ({TRUST: THERE}, TRUST, "set the type PEM"),
        ({TRUST: "/no.pem", "ssl.truststore.type": "PEM"}, TRUST, "/no.pem cannot be read"),
        ({STORE: "/no.jks", "ssl.keystore.type": "JKS"}, STORE, "/no.jks cannot be read"),
        ({STORE: "/no.pem", "ssl.keystore.type": "PEM"}, STORE, "/no.pem cannot be read"),
        ({"ssl.engine.factory.class": "x.Y"}, "ssl.engine.factory.class", "PEM"),
        ({"sasl.login.callback.handler.class": "x.Y"}, "sasl.login.callback.handler.class", "OIDC"),
        ({RETRIEVER: f"{JWT}.JwtBearerJwtRetriever"}, RETRIEVER, "client id and secret"),
        (
            {"sasl.jaas.config": f"{PLAIN} required username=u password=p tokenauth=true;"},
            "sasl.jaas.config",
            "password of a user",
        ),
        (
            {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
            "sasl.jaas.config",
            "Kerberos",
        ),
        (
            {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
            "sasl.jaas.config",
            "Java class",
        ),
    ],
)
def test_an_unsupported_setting_is_refused_with_an_alternative(java, key, what_to_do):
    assert what_to_do in refused(java)[key]


def test_the_content_of_a_store_becomes_pem(tmp_path):
    authority = Authority(tmp_path)
    java = {
        TRUST: str(authority.truststore("JKS")),
        "ssl.truststore.password": STORE_PASSWORD,
        STORE: str(authority.identity("mirror").pkcs12()),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    security = translate_security(java)

    names = {"ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"}
    assert security.settings.keys() == names
    assert security.checks.keys() == java.keys()
    assert refused(java) == {}
    AdminClient({**security.settings, "bootstrap.servers": "localhost:1"})


@pytest.mark.parametrize(
    ("location", "store", "why"),
    [
        pytest.param(TRUST, "pkcs12", "no trusted certificate", id="a key where trust belongs"),
        pytest.param(STORE, "truststore", "no key", id="trust where a key belongs"),
    ],
)
def test_a_store_of_the_wrong_kind_is_refused(tmp_path, location, store, why):
    authority = Authority(tmp_path)
    path = (
        authority.truststore("JKS")
        if store == "truststore"
        else authority.identity("mirror").pkcs12()
    )
    password = location.replace("location", "password")

    assert why in refused({location: str(path), password: STORE_PASSWORD})[location]


@pytest.mark.parametrize("name", ["DefaultJwtRetriever", "ClientCredentialsJwtRetriever"])
def test_javas_classes_for_a_client_id_and_secret_are_accepted(name):
    security = translate_security({RETRIEVER: f"{JWT}.{name}"})

    assert security.checks[RETRIEVER].status is KeyStatus.NO_EFFECT
    assert security.settings == {}


def test_librdkafka_accepts_the_settings():
    password = f'{PLAIN} required username="u" password="p";'
    suites = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    java = {**SASL, "sasl.jaas.config": password, "ssl.cipher.suites": suites}

    AdminClient({**translate_security(java).settings, "bootstrap.servers": "localhost:1"})


@pytest.mark.parametrize(
    "key", [*CONNECTION_KEYS, *NO_EFFECT_CONNECTION_KEYS, *REFUSED_CONNECTION_KEYS]
)
def test_every_connection_key_has_a_check(key):
    assert key in translate_security({key: "x"}).checks


def test_a_repr_and_a_note_show_no_secret():
    java = {"sasl.jaas.config": f"{PLAIN} required username=u password=hunter2;"}
    security = translate_security(java)

    assert "hunter2" not in repr(security)
