import os
import pickle
from pathlib import Path

import pytest

from resources.config.load import check_config, read_config
from schemas.config.config import OffsetSyncsConfig
from schemas.errors.base import ConfigError
from schemas.errors.configuration import (
    ConfigFileError,
    InvalidKeysError,
    InvalidPatternError,
    RefusedKeyError,
    SecretError,
    UnknownAliasError,
    UnknownKeyError,
)
from schemas.mm2.replication_policy import DefaultPolicy, IdentityPolicy

BASE = """
clusters = A, B
A.bootstrap.servers = a1:9092 , a2:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""


@pytest.fixture
def config(tmp_path):
    def read(more=""):
        path = tmp_path / "mm2.properties"
        path.write_text(BASE + more, encoding="iso-8859-1")
        return read_config(path)

    return read


def test_a_small_file_has_mirrormakers_defaults(config, tmp_path):
    read = config()
    (flow,) = read.flows

    assert flow.flow.name == "A->B"
    assert read.sources() == ("A",)
    assert read.clusters["A"].bootstrap_servers == "a1:9092,a2:9092"
    assert read.clusters["A"].auto_offset_reset == "earliest"
    assert read.lake == str(tmp_path / "lake")
    assert read.tasks_max == os.cpu_count()
    assert (read.stage_retention_ms, read.stage_retention_bytes) == (None, None)
    assert flow.replication_factor == 2
    assert (flow.refresh_topics_interval_s, flow.emit_checkpoints_interval_s) == (600, 60)
    assert flow.policy == DefaultPolicy()
    assert flow.remote_topic("orders") == "A.orders"
    assert flow.replicates("team.internal")
    assert not flow.replicates("orders.replica")
    assert not flow.groups.matches("console-consumer-1")
    assert flow.config_properties_exclude.matches("min.insync.replicas")


@pytest.mark.parametrize("what", ["configs", "acls"])
def test_settings_and_acls_of_topics_are_synced_by_default(config, what):
    def interval(more=""):
        return getattr(config(more).flows[0], f"sync_topic_{what}_interval_s")

    assert interval() == 600
    assert interval(f"A->B.sync.topic.{what}.interval.seconds = 5\n") == 5
    assert interval(f"sync.topic.{what}.interval.seconds = 0\n") is None
    assert interval(f"sync.topic.{what}.enabled = false\n") is None


def test_source_defaults_are_used_only_if_the_flow_sets_them(config):
    def says(more):
        return config(more).flows[0].uses_source_defaults

    assert says("A->B.use.defaults.from = source\n")
    assert not says("A->B.use.defaults.from = target\n")
    assert not says("use.defaults.from = source\n")  # MirrorMaker 2 does not read it there


def test_deltamirrors_groups_are_never_matched(config):
    (flow,) = config("groups.exclude =\n").flows

    assert flow.groups.matches("console-consumer-1")
    assert not flow.groups.matches("deltamirror.A->B")


def test_the_example_file_at_the_root_is_valid():
    path = Path(__file__).parents[3] / "mm2.properties"

    assert [flow.flow.name for flow in read_config(path).flows] == ["us-east->eu-west"]
    assert {each.status.value for each in check_config(path)} == {"honoured"}


def test_a_config_can_be_pickled_and_shows_no_secret(config):
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    read = config(
        "A.security.protocol=SASL_PLAINTEXT\nA.sasl.mechanism=PLAIN\n"
        f"A.sasl.jaas.config={jaas} username=u password=hunter2;\n"
    )

    assert pickle.loads(pickle.dumps(read)) == read
    assert read.clusters["A"].admin["sasl.password"] == "hunter2"
    assert "sasl.password" not in read.clusters["B"].admin
    assert "hunter2" not in repr(read)


def test_the_key_of_a_flow_takes_precedence_over_the_top_level(config):
    (flow,) = config("topics=a\nA->B.topics=b\nreplication.factor=3\n").flows

    assert flow.topics.include == ("b",)
    assert flow.replication_factor == 3


def test_deltamirrors_own_keys_set_the_limits(config):
    read = config(
        "deltamirror.lake=/data/lake\n"
        "deltamirror.stage.max.records=10\ndeltamirror.stage.max.bytes=20\n"
        "deltamirror.replay.chunk.records=30\ndeltamirror.replay.chunk.bytes=40\n"
        "deltamirror.stage.retention.ms=50\ndeltamirror.stage.retention.bytes=60\n"
    )

    assert read.lake == "/data/lake"
    assert (read.max_batch_records, read.max_batch_bytes) == (10, 20)
    assert (read.transaction_records, read.transaction_bytes) == (30, 40)
    assert (read.stage_retention_ms, read.stage_retention_bytes) == (50, 60)


@pytest.mark.parametrize(
    ("more", "number"),
    [
        ("tasks.max=4\n", 4),
        ("tasks.max=4\nA->B.tasks.max=8\n", 8),
        ("tasks.max=4\nA->B.tasks.max=2\n", 2),
        ("A->B.tasks.max=8\nB->A.enabled=true\nB->A.tasks.max=9\n", 9),
    ],
)
def test_the_number_of_tasks_is_the_largest_of_all_flows(config, more, number):
    assert config(more).tasks_max == number


@pytest.mark.parametrize(
    ("more", "names"),
    [
        pytest.param("B->A.enabled=TRUE\n", ["A->B", "B->A"], id="both ways"),
        pytest.param("A->B.enabled=false\n", [], id="none"),
        pytest.param("enabled=true\n", ["A->B", "B->A"], id="the top level enables all pairs"),
        pytest.param(
            "enabled=true\nB->A.emit.heartbeats.enabled=false\n",
            ["A->B"],
            id="of those that MirrorMaker 2 would start for their heartbeats",
        ),
        pytest.param("enabled=true\nA->B.enabled=false\n", ["B->A"], id="unless it says no itself"),
    ],
)
def test_the_enabled_flows_are_those_that_mirrormaker_2_runs(config, more, names):
    assert [flow.flow.name for flow in config(more).flows] == names


@pytest.mark.parametrize(
    ("more", "policy"),
    [
        (
            "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n",
            IdentityPolicy(".", ".", "A"),
        ),
        ("replication.policy.separator=_\n", DefaultPolicy("_", "_")),
        (
            "A->B.replication.policy.separator=_\n"
            "replication.policy.internal.topic.separator.enabled=false\n",
            DefaultPolicy("_", "."),
        ),
    ],
)
def test_a_policy_is_created_from_its_keys(config, more, policy):
    (flow,) = config(more).flows

    assert flow.policy == policy


@pytest.mark.parametrize(
    ("more", "refresh", "checkpoints"),
    [
        ("refresh.topics.interval.seconds=5\n", 5, 60),
        ("refresh.topics.enabled=false\nA->B.emit.checkpoints.interval.seconds=1\n", None, 1),
        ("refresh.topics.interval.seconds=-1\nemit.checkpoints.enabled=false\n", None, None),
        ("refresh.topics.interval.seconds=9223372036854775807\n", 3_153_600_000, 60),
    ],
)
def test_a_disabled_interval_is_none(config, more, refresh, checkpoints):
    (flow,) = config(more).flows

    assert flow.refresh_topics_interval_s == refresh
    assert flow.emit_checkpoints_interval_s == checkpoints


@pytest.mark.parametrize(
    ("more", "every_s"),
    [
        pytest.param("", None, id="disabled by default"),
        pytest.param("sync.group.offsets.enabled=true\n", 60, id="MirrorMaker 2's interval"),
        pytest.param(
            "A->B.sync.group.offsets.enabled=true\nsync.group.offsets.interval.seconds=5\n",
            5,
            id="its own",
        ),
    ],
)
def test_group_offsets_are_synced_only_if_enabled(config, more, every_s):
    (flow,) = config(more).flows

    assert flow.sync_group_offsets_interval_s == every_s


@pytest.mark.parametrize(
    ("more", "syncs"),
    [
        pytest.param(
            "", ("A", "mm2-offset-syncs.B.internal", 100, 2), id="on the source, as MirrorMaker 2"
        ),
        pytest.param(
            "offset-syncs.topic.location=target\noffset.lag.max=0\n"
            "offset-syncs.topic.replication.factor=3\nreplication.policy.separator=_\n",
            ("B", "mm2-offset-syncs_A_internal", 0, 3),
            id="on the target, under the other alias",
        ),
        pytest.param(
            "offset.lag.max=-1\n",
            ("A", "mm2-offset-syncs.B.internal", 0, 2),
            id="a negative number means every record",
        ),
        pytest.param("A->B.emit.offset-syncs.enabled=false\n", None, id="nowhere"),
    ],
)
def test_offset_syncs_have_the_configured_cluster_and_topic(config, more, syncs):
    (flow,) = config(more).flows

    assert flow.offset_syncs == (syncs and OffsetSyncsConfig(*syncs))


@pytest.mark.parametrize(
    ("more", "hearts"),
    [
        pytest.param("", {"A->B": (1, 2), "B->A": (1, 2)}, id="each pair, enabled or not"),
        pytest.param(
            "emit.heartbeats.enabled=false\nB->A.emit.heartbeats.enabled=true\n",
            {"B->A": (1, 2)},
            id="a pair's own key beats the top level",
        ),
        pytest.param(
            "emit.heartbeats.interval.seconds=0\nA->B.emit.heartbeats.interval.seconds=5\n"
            "heartbeats.topic.replication.factor=3\n",
            {"A->B": (5, 3)},
            id="an interval of 0 is never",
        ),
    ],
)
def test_every_pair_emits_heartbeats_unless_disabled(config, more, hearts):
    found = {h.flow.name: (h.interval_s, h.replication_factor) for h in config(more).heartbeats}

    assert found == hearts


@pytest.mark.parametrize(
    ("more", "copies"),
    [
        pytest.param("", 2, id="as many as of a remote topic"),
        pytest.param("replication.factor = 1", 1, id="as many as of a remote topic, which is set"),
        pytest.param("checkpoints.topic.replication.factor = 3", 3, id="its own number"),
    ],
)
def test_the_checkpoints_topic_has_the_configured_replication_factor(config, more, copies):
    assert config(more).flows[0].checkpoints_replication_factor == copies


def test_a_clients_key_takes_precedence_over_the_clusters_and_the_top_level(config):
    clusters = config(
        "ssl.endpoint.identification.algorithm=https\n"
        "security.protocol=SSL\nB.security.protocol=PLAINTEXT\nA.admin.security.protocol=PLAINTEXT\n"
    ).clusters

    assert clusters["A"].consumer["security.protocol"] == "SSL"
    assert clusters["A"].admin["security.protocol"] == "PLAINTEXT"
    assert clusters["B"].producer["security.protocol"] == "PLAINTEXT"
    assert clusters["B"].producer["ssl.endpoint.identification.algorithm"] == "https"


def test_the_data_producer_has_the_targets_settings_and_the_flows_overrides(config):
    read = config(
        "B.producer.linger.ms=20\nB.producer.batch.size=1000\n"
        "A->B.producer.override.linger.ms=50\nA->B.producer.linger.ms=70\nproducer.linger.ms=80\n"
    )

    assert read.flows[0].producer["linger.ms"] == 50
    assert read.flows[0].producer["batch.size"] == 1000
    assert read.clusters["B"].producer["linger.ms"] == 20


@pytest.mark.parametrize(
    ("more", "wait_ms"),
    [
        ("A->B.consumer.fetch.max.wait.ms=1\n", 1),
        ("A->B.consumer.fetch.max.wait.ms=1\nA.consumer.fetch.max.wait.ms=2\n", 2),
        ("A->B.source.consumer.fetch.max.wait.ms=3\nA.consumer.fetch.max.wait.ms=2\n", 3),
    ],
)
def test_the_consumer_has_mirrormaker_2s_precedence(config, more, wait_ms):
    assert config(more).clusters["A"].consumer["fetch.wait.max.ms"] == wait_ms


def test_auto_offset_reset_is_a_key_of_the_sources_consumer(config):
    assert config("A.consumer.auto.offset.reset=latest\n").clusters["A"].auto_offset_reset == (
        "latest"
    )


def test_flows_that_configure_different_consumers_of_one_source_are_refused(config):
    with pytest.raises(ConfigError, match=r"write A\.consumer\.\* instead"):
        config(
            "clusters=A,B,C\nC.bootstrap.servers=c:1\nA->C.enabled=true\n"
            "A->C.consumer.fetch.max.wait.ms=1\n"
        )


def test_a_secret_is_read_from_the_environment(config, monkeypatch):
    monkeypatch.setenv("RACK", "r1")

    assert config("A.consumer.client.rack=${env:RACK}\n").clusters["A"].consumer["client.rack"] == (
        "r1"
    )


def test_a_cluster_that_is_named_twice_is_one(config):
    read = config("clusters=A, B, A\nB->A.enabled=true\n")

    assert list(read.clusters) == ["A", "B"]
    assert [flow.flow.name for flow in read.flows] == ["A->B", "B->A"]


def test_blanks_after_a_value_are_ignored(config):
    """Java trims what it reads; a .properties file keeps the blanks at a line's end."""
    read = config(
        "replication.policy.class=IdentityReplicationPolicy \n"
        "A.consumer.auto.offset.reset=latest \noffset-syncs.topic.location=target \n"
        "A->B.use.defaults.from=source \nA.security.protocol=ssl \nclusters=A, B \n"
    )
    (flow,) = read.flows

    assert flow.policy == IdentityPolicy(".", ".", "A")
    assert flow.offset_syncs.cluster == "B"
    assert flow.uses_source_defaults
    assert read.clusters["A"].auto_offset_reset == "latest"
    assert read.clusters["A"].admin["security.protocol"] == "SSL"


def test_an_alias_may_have_a_dot_and_begin_like_another(config):
    read = config("clusters=A,B,A.x\nA.x.bootstrap.servers=x:1\nA.x->B.enabled=true\n")

    assert read.clusters["A.x"].bootstrap_servers == "x:1"
    assert [flow.flow.name for flow in read.flows] == ["A->B", "A.x->B"]


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ("clusters=\n", ConfigFileError, "no `clusters`"),
        ("clusters=A,B,C\n", RefusedKeyError, "C.bootstrap.servers"),
        ("A->C.enabled=true\n", UnknownAliasError, "no cluster C"),
        ("A->A.enabled=true\n", UnknownAliasError, "A->A"),
        ("topics=a[\n", InvalidPatternError, "a["),
        ("A->B.enabled=yes\n", RefusedKeyError, "true or false"),
        ("replication.factor=-2\n", RefusedKeyError, "at least -1"),
        (
            "A->B.emit.offset-syncs.enabled=false\noffset-syncs.topic.location=target\n",
            *(RefusedKeyError, "no offset syncs are written, but offset-syncs.topic.location"),
        ),
        ("clusters=A,,B\n", RefusedKeyError, "clusters: an entry of the list is empty"),
        ("A->B.topics=a, b, a\n", RefusedKeyError, "A->B.topics: an entry of the list is a"),
        ("A.bootstrap.servers=a:1,a:1\n", RefusedKeyError, "A.bootstrap.servers: an entry"),
        ("offset-syncs.topic.replication.factor=40000\n", RefusedKeyError, "to 32767"),
        ("A->B.transaction.boundary=record\n", RefusedKeyError, "poll, interval or connector"),
        ("metric.names.formats=old\n", RefusedKeyError, "legacy, new or both"),
        ("B.producer.linger.ms=${env:NOT_SET_AT_ALL}\n", SecretError, "NOT_SET_AT_ALL"),
        ("transforms=mask\n", RefusedKeyError, "unchanged"),
        ("A.security.protocol=SASL_SSL\n", RefusedKeyError, "A.sasl.mechanism: Java's default"),
        ("A.bootstrap.servers=\n", RefusedKeyError, "line 6: A.bootstrap.servers: every cluster"),
        ("C.bootstrap.servers=c:1\n", UnknownAliasError, "C.bootstrap.servers: no cluster C"),
        ("x.y.ssl.provider=c\n", UnknownAliasError, "no cluster x.y (clusters: A, B)"),
        ("C.consumer.client.id=c\n", UnknownAliasError, "C.consumer.client.id: no cluster C"),
        ("A->B.groups=a[\n", InvalidPatternError, "line 6: A->B.groups: the regular expression a["),
        (
            "deltamirror.lake=s3://bucket/lake\n",
            RefusedKeyError,
            "line 6: deltamirror.lake: object",
        ),
        ("replication.policy.class=no.such:X", RefusedKeyError, "line 6: replication.policy.class"),
    ],
)
def test_an_invalid_value_is_an_error_that_names_its_key(config, more, error, message):
    with pytest.raises(error) as raised:
        config(more)

    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_one_error_lists_all_wrong_keys_with_file_line_and_key(config, tmp_path):
    with pytest.raises(InvalidKeysError) as raised:
        config(
            "clusters=A,B,C\n\nA->B.groups=a[\ntopcs=x\nA->B.enabled=yes\n"
            "A->B.producer.override.client.id=${env:NOT_SET_AT_ALL}\nA.ssl.kye.pasword=hunter2\n"
        )

    assert str(raised.value).startswith(f"{tmp_path / 'mm2.properties'}: 6 keys are wrong: ")
    assert str(raised.value).partition("wrong: ")[2].split("; ") == [
        "line 10: A->B.enabled: it must be true or false",
        "line 8: A->B.groups: the regular expression a[ cannot be read: "
        "unterminated character set at position 1",
        "line 9: topcs is not a key of mm2.properties (Did you mean topics?)",
        "line 11: A->B.producer.override.client.id: ${env:NOT_SET_AT_ALL} cannot be resolved: "
        "this variable is not set in the environment",
        "line 12: A.ssl.kye.pasword is not a key of mm2.properties "
        "(Did you mean A.ssl.key.password?)",
        "C.bootstrap.servers: every cluster needs it",
    ]
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("A->B.topcs", "A->B.topics"),
        ("A->B.producer.overide.linger.ms", "A->B.producer.override.linger.ms"),
        ("A.consumer.fetch.min.byte", "A.consumer.fetch.min.bytes"),
        ("A.bootstrap.server", "A.bootstrap.servers"),
        ("deltamirror.stage.max.record", "deltamirror.stage.max.records"),
    ],
)
def test_the_error_of_an_unknown_key_names_the_nearest_key(config, key, nearest):
    with pytest.raises(UnknownKeyError) as error:
        config(f"{key}=1\n")

    assert f": line 6: {key} is not a key of mm2.properties" in str(error.value)
    assert nearest in error.value.hint


@pytest.mark.parametrize(
    ("said", "listen"),
    [
        ("", ("127.0.0.1", 9877)),
        ("deltamirror.metrics.listen = 0.0.0.0:0\n", ("0.0.0.0", 0)),
        ("deltamirror.metrics.listen = [::1]:65535\n", ("::1", 65535)),
        ("deltamirror.metrics.listen =\n", None),
    ],
)
def test_metrics_have_the_configured_address_or_none(config, said, listen):
    assert config(said).metrics_listen == listen


@pytest.mark.parametrize("said", ["9877", ":9877", "here:65536", "a:b:1", "http://here:1"])
def test_an_invalid_address_for_metrics_is_refused(config, said):
    with pytest.raises(RefusedKeyError, match="host:port"):
        config(f"deltamirror.metrics.listen = {said}\n")


REFERENCES = ["${env:OF_TESTS}", "${file:secrets.properties:id}", "${dir:secrets:id}"]


@pytest.fixture
def secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("OF_TESTS", "hunter2")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "id").write_text("hunter2")
    (tmp_path / "secrets.properties").write_text("id = hunter2")


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("ssl.key.password", lambda read: read.clusters["B"].admin["ssl.key.password"]),
        ("A.ssl.key.password", lambda read: read.clusters["A"].admin["ssl.key.password"]),
        ("A.consumer.client.id", lambda read: read.clusters["A"].consumer["client.id"]),
        ("A->B.topics", lambda read: read.flows[0].topics.include[0]),
        ("A->B.producer.override.client.id", lambda read: read.flows[0].producer["client.id"]),
        ("deltamirror.lake", lambda read: Path(read.lake).name),
    ],
)
def test_a_reference_is_resolved_in_every_scope(config, secrets, key, found, reference):
    key_of_its_own = "ssl.keystore.key = KEY\n"

    assert found(config(f"{key_of_its_own}{key} = {reference}")) == "hunter2"


@pytest.mark.parametrize(
    "reference", ["${env:NONE}", "${file:secrets.properties:none}", "${dir:secrets:none}"]
)
@pytest.mark.parametrize(
    "key", ["ssl.key.password", "A.sasl.jaas.config", "A.consumer.client.id", "A->B.topics"]
)
def test_the_error_of_an_unresolved_reference_names_its_key(config, secrets, key, reference):
    with pytest.raises(SecretError) as error:
        config(f"A.ssl.key.password = hunter2\n{key} = x hunter2 {reference}")

    assert f": line 7: {key}: {reference} cannot be resolved" in str(error.value)
    assert "hunter2" not in str(error.value)
