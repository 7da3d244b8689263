"""A mirror with every authentication method in one file; no two clusters are secured alike."""

import pytest

from deltamirror.context import MirrorContext
from deltamirror.run.supervisor import Mirror
from resources.config.load import read_config
from schemas.tables import CHECKPOINTS
from tests.support.brokers import Record, commit_group, consume_all, create_topic, produce
from tests.support.certificates import STORE_PASSWORD
from tests.support.secured_broker import MODULES, PASSWORD, ROOT, secured_brokers, token_endpoint

pytestmark = [pytest.mark.kafka, pytest.mark.story]

SCRAM = f'{MODULES}.scram.ScramLoginModule required username="{ROOT}" password='
PLAIN = f'{MODULES}.plain.PlainLoginModule required username="{ROOT}" password='
OAUTH = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId=mirror clientSecret="

# By cluster alias: the listener and its settings. Every secret is a reference: to a
# variable, to a key of a file, or to a file of a folder.
WAYS = {
    "plain": ("SASL", "SASL_PLAINTEXT", {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": PLAIN + '"${env:MIRROR_PASSWORD}";',
    }),
    "scram256": ("SASL", "SASL_PLAINTEXT", {
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": SCRAM + '"${file:secrets.properties:password}";',
    }),
    "scram512": ("SASL", "SASL_PLAINTEXT", {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": SCRAM + '"${dir:secrets:password}";',
    }),
    "oauth": ("SASL", "SASL_PLAINTEXT", {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "${env:TOKEN_URL}",
        "sasl.jaas.config": OAUTH + '"${env:CLIENT_SECRET}";',
    }),
    "tls": ("TLS", "SSL", {
        "ssl.truststore.location": "{jks_trust}",
        "ssl.truststore.password": "${file:secrets.properties:store}",
    }),
    "mutual": ("MUTUAL", "SSL", {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": "{pkcs12_trust}",
        "ssl.truststore.password": "${env:STORE_PASSWORD}",
        "ssl.keystore.location": "{jks}",
        "ssl.keystore.password": "${env:STORE_PASSWORD}",
        "ssl.key.password": "${env:STORE_PASSWORD}",
    }),
    "inline": ("MUTUAL", "SSL", {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "${dir:secrets:authority}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "${dir:secrets:chain}",
        "ssl.keystore.key": "${dir:secrets:key}",
        "ssl.key.password": "${env:KEY_PASSWORD}",
    }),
    "sasltls": ("SASLTLS", "SASL_SSL", {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "{pem_trust}",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": SCRAM + '"${env:MIRROR_PASSWORD}";',
    }),
}  # fmt: skip
KEY_PASSWORD, CLIENT_SECRET = "key-password", "client-secret"


@pytest.fixture
def brokers(tmp_path):
    with secured_brokers(tmp_path, "source", "target") as made:
        yield made


@pytest.fixture
def places(brokers, tmp_path, monkeypatch):
    """Write the secrets to the places that the file refers to; return the stores' paths."""
    certificates, _ = brokers
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "password").write_text(PASSWORD)
    (folder / "authority").write_text(certificates.authority.certificate.read_text())
    (folder / "chain").write_text(certificates.client.certificate.read_text())
    (folder / "key").write_text(certificates.client.encrypted_key(KEY_PASSWORD))
    (tmp_path / "secrets.properties").write_text(
        f"password = {PASSWORD}\nstore = {STORE_PASSWORD}\n"
    )
    monkeypatch.setenv("MIRROR_PASSWORD", PASSWORD)
    monkeypatch.setenv("STORE_PASSWORD", STORE_PASSWORD)
    monkeypatch.setenv("KEY_PASSWORD", KEY_PASSWORD)
    monkeypatch.setenv("CLIENT_SECRET", CLIENT_SECRET)
    with token_endpoint(CLIENT_SECRET) as url:
        monkeypatch.setenv("TOKEN_URL", url)
        yield {
            "jks_trust": certificates.authority.truststore("JKS"),
            "pkcs12_trust": certificates.authority.truststore("PKCS12"),
            "pem_trust": certificates.authority.certificate,
            "jks": certificates.client.jks(),
        }


def lines_of(alias, way, broker, places):
    """Return the lines of the file for cluster *alias* with the authentication *way*."""
    listener, protocol, settings = WAYS[way]
    entries = {"bootstrap.servers": broker.at(listener), "security.protocol": protocol, **settings}
    for key, value in entries.items():
        path = places.get(value.strip("{}"), value) if value.startswith("{") else value
        yield f"{alias}.{key} = {path}"


def test_a_mirror_runs_with_every_authentication_method(brokers, places, tmp_path):
    _, (source, target) = brokers
    here, there = source.bootstrap_servers, target.bootstrap_servers
    create_topic(here, "orders")
    produce(here, "orders", [Record(b"k", b"v%d" % n) for n in range(50)])
    commit_group(here, "billing", {("orders", 0): 20})
    ways = list(WAYS)
    flows = {way: f"to-{ways[i - 3]}" for i, way in enumerate(ways)}
    lines = [f"clusters = {', '.join([*flows, *flows.values()])}", "replication.factor = 1"]
    lines += ["checkpoints.topic.replication.factor = 1", "deltamirror.lake = lake"]
    lines += ["emit.heartbeats.enabled = false"]  # only 8 of the 240 pairs of clusters are flows
    for way, to in flows.items():
        lines += [f"{way}->{to}.enabled = true", f"{way}->{to}.topics = orders"]
        lines += lines_of(way, way, source, places)
        lines += lines_of(to, to.removeprefix("to-"), target, places)
    path = tmp_path / "mm2.properties"
    path.write_text("\n".join(lines))

    config = read_config(path)
    Mirror(config, until_caught_up=True).run()

    sent = [(m.key(), m.value(), m.timestamp()) for m in consume_all(here, "orders")]
    for each in config.flows:
        arrived = consume_all(there, f"{each.flow.source}.orders")
        assert [(m.key(), m.value(), m.timestamp()) for m in arrived] == sent, each.flow
        (checkpoint,) = (
            MirrorContext(config).lake.flow_table(each.flow, CHECKPOINTS).rows().to_pylist()
        )
        assert (checkpoint["group"], checkpoint["upstream_offset"]) == ("billing", 20)
        assert len(consume_all(there, f"{each.flow.source}.checkpoints.internal")) == 1
    assert len(config.flows) == len(WAYS)
