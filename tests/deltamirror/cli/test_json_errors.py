"""The JSON of `config check` and of errors is as it was recorded; no broker is needed."""

import pytest

from tests.support.golden import Golden

GOOD = """
clusters = us-east, eu-west
us-east.bootstrap.servers = 127.0.0.1:1
eu-west.bootstrap.servers = 127.0.0.1:2
us-east->eu-west.enabled = true
us-east->eu-west.topics = orders, audit.*
emit.heartbeats.enabled = false
"""

# Every status and every way in which a value is shown, hidden or cut.
RICH = r"""
clusters = us-east, eu-west
us-east.bootstrap.servers = 127.0.0.1:1
eu-west.bootstrap.servers = 127.0.0.1:2
enabled = false
us-east->eu-west.enabled = true
us-east->eu-west.topics = orders, audit.*
us-east->eu-west.topics.blacklist = secret.*
topics.exclude = [[a-z]
eu-west->us-east.topics = .*\\.copy
us-east->mars.enabled = true
replication.policy.class = org.example.OwnPolicy
replication.policy.separator = _
replication.factor = two
sync.topic.configs.interval.seconds = 30
refresh.groups.enabled = true
tasks.max = 0
transforms = mask
transforms.mask.type = org.example.Mask
errors.tolerance = all
offset.storage.topic = mm2-offsets
config.providers = vault, own
config.providers.vault.class = org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.own.class = org.example.Vault
us-east.consumer.fetch.max.wait.ms = 200
us-east.consumer.auto.offset.reset = none
us-east.consumer.isolation.level = read_uncommitted
eu-west.producer.buffer.memory = 1048576
eu-west.producer.linger.ms = 3600000
eu-west.producer.compression.type = brotli
eu-west.producer.acks = 1
eu-west.producer.interceptor.classes = org.example.Spy
consumer.fetch.min.bytes = 5
us-east->eu-west.producer.override.batch.size = 65536
us-east->eu-west.target.producer.linger.ms = 5
us-east->eu-west.source.cluster.bootstrap.servers = elsewhere:9092
us-east.security.protocol = SASL_SSL
us-east.sasl.mechanism = GSSAPI
us-east.sasl.jaas.config = org.example.Login required password="hunter2";
us-east.ssl.key.password = hunter2
eu-west.ssl.keystore.password = ${env:GOLDEN_NOT_SET}
eu-west.ssl.truststore.password = ${vault:nowhere.properties:password}
us-east.ssl.keystore.passwort = hunter2
replication.facto = 2
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj = x
nothing.like.it = hunter2
deltamirror.lake = s3://bucket/lake
deltamirror.replay.chunk.records = 0
deltamirror.stage.retention.ms = -1
deltamirror.metrics.listen = 127.0.0.1:port
"""

FLOW = ("--flow", "us-east->eu-west")


@pytest.fixture
def golden(tmp_path):
    made = Golden(tmp_path / "mm2.properties")
    made.config.write_text(GOOD)
    return made


def test_the_json_of_config_check_equals_the_golden_file(golden):
    for text in (GOOD, RICH, "clusters = a, b\na.bootstrap.servers = a:1\n", "# nothing\n"):
        golden.config.write_text(text)
        golden.run("config_check", "config", "check")

    golden.check()


def test_the_json_errors_of_invalid_files_equal_the_golden_file(golden):
    for more in (
        "replication.facto = 2",
        "replication.factor = two",
        "eu-west.producer.linger.ms = soon",
        "topics.exclude = [[a-z]",
        "us-east.ssl.key.password = ${env:GOLDEN_NOT_SET}",
        "us-east->mars.enabled = true",
        "transforms = mask",
        "clusters = us-east, eu-west, mars",
        "us-east.security.protocol = SASL_SSL\nus-east.sasl.mechanism = GSSAPI",
        "replication.facto = 2\nreplication.factor = two\ntransforms = mask",
        "a = \\u12",
    ):
        golden.config.write_text(f"{GOOD}{more}\n")
        golden.run("errors_of_the_file", "status", given=more)
    golden.config.write_text("# nothing\n")
    golden.run("errors_of_the_file", "status", given="no clusters")
    golden.config.unlink()
    for command in ("status", "plan", "run", "config check"):
        golden.run("errors_of_the_file", *command.split(), given="no file")

    golden.check()


def test_the_json_errors_of_wrong_usage_equal_the_golden_file(golden):
    for args in (
        (),
        ("nonsense",),
        ("groups", "nonsense"),
        ("status", "--nonsense"),
        ("status", "orders"),
        ("pause",),
        ("pause", *FLOW, "--partition", "0"),
        ("resume", *FLOW, "--topic", "orders", "--restart-topic", "orders"),
        ("run", "--standby", "--until-caught-up"),
        ("run", "--flow", "a->b"),
        ("run", "--clusters", "mars"),
        ("status", "--flow", "a->b"),
        ("lag", "--flow", "a->b"),
        ("plan", "--flow", "a->b"),
        ("translate", "--flow", "a->b", "--group", "billing"),
        ("translate", *FLOW),
        ("translate", *FLOW, "--topic", "orders", "--partition", "0"),
        ("translate", *FLOW, "--topic", "orders", "--partition", "-1", "--offset", "0"),
        ("translate", *FLOW, "--group", "billing", "--as-of", "yesterday"),
        ("groups", "plan", "--flow", "a->b"),
        ("replay", "--flow", "a->b", "--topic", "orders"),
        ("replay", *FLOW, "--topic", "orders", "--as-of", "5", "--from-offset", "3"),
        ("verify", "--flow", "a->b"),
        ("verify", "--sample", "0"),
        ("gaps", "--cluster", "eu-west"),
        ("accept-gap", "--cluster", "eu-west", "--topic", "orders"),
        ("maintain", "--cluster", "eu-west"),
        ("maintain", "--restage", "--rebuild-map"),
        ("import-mm2", "--flow", "a->b"),
        ("export-mm2", "--flow", "a->b"),
    ):
        golden.run("errors_of_usage", *args)

    golden.check()


def test_the_json_of_an_empty_lake_and_unreachable_clusters_equals_the_golden_file(golden):
    for args in (
        ("plan",),
        ("gaps",),
        ("translate", *FLOW, "--topic", "orders", "--partition", "0", "--offset", "3"),
        ("translate", *FLOW, "--topic", "other", "--partition", "0", "--offset", "3"),
        ("translate", *FLOW, "--topic", "orders", "--partition", "0", "--offset", "3", "--reverse"),
        ("translate", *FLOW, "--group", "billing"),
        ("verify",),
        ("verify", "--topic", "orders"),
        ("replay", *FLOW, "--topic", "orders"),
        ("pause", *FLOW),
        ("resume", *FLOW),
        ("maintain",),
        ("maintain", "--rebuild-map"),
        ("maintain", "--restage"),
    ):
        golden.run("empty_lake", *args)

    golden.check()
