import pytest

from resources.config.load import check_config
from schemas.config.keys import MASK, KeyStatus

BASE = "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"
H, T, N, R, U = (
    KeyStatus.HONOURED,
    KeyStatus.TRANSLATED,
    KeyStatus.NO_EFFECT,
    KeyStatus.REFUSED,
    KeyStatus.UNKNOWN,
)


@pytest.fixture
def verdict(tmp_path):
    def judge(line):
        path = tmp_path / "mm2.properties"
        path.write_text(BASE + line)
        return check_config(path)[-1]

    return judge


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("topics=orders.*", H),
        ("A->B.topics=orders.*", H),
        ("A.topics=orders.*", N),
        ("A->B.clusters=A", N),
        ("tasks.max=2", T),
        ("topics.blacklist=secret.*", R),
        ("sync.topic.acls.enabled=false", H),
        ("A->B.sync.group.offsets.enabled=true", H),
        ("use.defaults.from=source", N),
        ("A->B.use.defaults.from=source", H),
        ("A->B.use.defaults.from=Source", R),
        ("sync.topic.configs.interval.seconds=60", H),
        ("replication.policy.class=com.acme.Policy", R),
        ("topic.filter.class=org.apache.kafka.connect.mirror.DefaultTopicFilter", H),
        ("key.converter=org.apache.kafka.connect.converters.ByteArrayConverter", N),
        ("value.converter=org.apache.kafka.connect.json.JsonConverter", R),
        ("B.value.converter=io.confluent.connect.avro.AvroConverter", R),
        ("A->B.transforms.mask.type=x.Mask$Value", R),
        ("config.providers=vault", H),
        ("config.providers.vault.class=com.acme.Vault", R),
        ("config.providers.files.class=FileConfigProvider", H),
        ("B.offset.flush.interval.ms=1000", N),
        ("offset.flush.interval.ms=1000", N),
        ("offset.storage.replication.factor=1", N),
        ("B.exactly.once.source.support=enabled", N),
        ("dedicated.mode.enable.internal.rest=true", N),
        ("listeners=http://127.0.0.1:0", N),
        ("A->B.transaction.boundary=interval", N),
        ("A.consumer.fetch.min.bytes=1", H),
        ("A.consumer.fetch.max.wait.ms=1", T),
        ("A.consumer.max.poll.records=5000", N),
        ("A.consumer.poll.timeout.ms=1", N),
        ("consumer.poll.timeout.ms=1", N),
        ("consumer.fetch.min.bytes=1", N),
        ("A.fetch.min.bytes=1", N),
        ("A->B.consumer.fetch.min.bytes=1", H),
        ("A->B.source.consumer.fetch.min.bytes=1", H),
        ("A->B.producer.override.linger.ms=1", H),
        ("A->B.producer.linger.ms=1", N),
        ("A->B.admin.retries=1", N),
        ("A->B.target.admin.retries=1", N),
        ("A->B.target.cluster.bootstrap.servers=x", R),
        ("A->B.target.cluster.ssl.provider=x", N),
        ("A->B.target.cluster.ssl.bogus=x", U),
        ("A->B.consumer.override.fetch.min.bytes=1", N),
        ("A->B.consumer.override.bogus=1", U),
        ("A->B.topic.creation.groups=a", N),
        ("A->B.topic.creation.a.include=x", N),
        ("A.sasl.oauthbearer.assertion.file=/a", R),
        ("A->B.security.protocol=SSL", N),
        ("security.protocol=SSL", H),
        ("A.security.protocol=ssl", H),
        ("A.consumer.security.protocol=SSL", H),
        ("A.ssl.truststore.location=/t.jks", R),
        ("A.ssl.enabled.protocols=TLSv1.3", N),
        ("A.ssl.bogus=1", U),
        ("A.consumer.bogus=1", U),
        ("A->B.producer.bogus=1", U),
        ("bogus=1", U),
        ("A->C.enabled=true", U),
        ("C.bootstrap.servers=c:1", U),
        ("replication.policy.class=no.such:Policy", R),
        ("A.consumer.client.id=${env:NOT_SET_AT_ALL}", R),
        ("topics=a[", R),
        ("deltamirror.lake=/data/lake", H),
        ("deltamirror.lake=s3://bucket/lake", R),
    ],
)
def test_every_key_gets_its_status(verdict, line, status):
    answer = verdict(line)

    assert answer.status is status
    assert answer.key == line.partition("=")[0]
    assert answer.note


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("A.topics=x", "at the top level or as A->B.topics"),
        ("producer.linger.ms=1", "as alias.producer.linger.ms"),
        ("producer.override.linger.ms=1", "as A->B.producer.override.linger.ms"),
        ("source.cluster.ssl.provider=x", "as A->B.source.cluster.ssl.provider"),
        ("linger.ms=1", "as alias.producer.linger.ms"),
        ("A.fetch.min.bytes=1", "as A.consumer.fetch.min.bytes"),
        ("A->B.client.id=1", "as alias.consumer.client.id or as alias.producer.client.id"),
    ],
)
def test_the_note_of_a_misplaced_key_names_its_valid_scopes(verdict, line, where):
    answer = verdict(line)

    assert answer.status is N
    assert f"write it {where}" in answer.note


OFF = "emit.offset-syncs.enabled=false"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (f"offset-syncs.topic.location=target\n{OFF}", R),
        (f"A->B.offset-syncs.topic.replication.factor=1\n{OFF}", R),
        (f"offset-syncs.topic.location=target\nA->B.{OFF}", R),
        pytest.param(f"offset-syncs.topic.location=x\nB->A.{OFF}", H, id="a flow that is off"),
        pytest.param(f"A.offset-syncs.topic.location=x\n{OFF}", H, id="at a cluster: unread"),
        pytest.param(
            f"A->B.emit.offset-syncs.enabled=true\noffset-syncs.topic.location=target\n{OFF}",
            H,
            id="the only flow says yes itself",
        ),
    ],
)
def test_disabled_offset_syncs_cannot_be_configured(verdict, lines, status):
    assert verdict(lines).status is status


def test_no_check_shows_a_secret(verdict):
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    answer = verdict(f'A.sasl.jaas.config={jaas} username="u" password="hunter2";')

    assert answer.value == MASK
    assert answer.status is T
    assert "hunter2" not in answer.note


def test_an_invalid_secret_is_refused_without_showing_it(verdict):
    answer = verdict("A.sasl.jaas.config=hunter2")

    assert answer.status is R
    assert "hunter2" not in f"{answer}"
