"""Configs of remote topics are synced from their source topics, on real brokers."""

import pytest

from deltamirror.topics.configs import TopicConfigSync
from pipeline.topics.configs import DYNAMIC_TOPIC_CONFIG, UNCHANGED_TIMESTAMPS
from tests.support.brokers import Record, create_topic, produce
from tests.support.world import FLOW, until

pytestmark = pytest.mark.kafka

ALIASES = ("us-east", "eu-west")
# The configs that MirrorMaker 2's tests exclude, and one that a Kafka 4 broker sets on all topics.
EXCLUDED = r"delete\\.retention\\..*, min\\.insync\\.replicas"


class Pair:
    """A topic on the source, and its remote topic, which existed before the mirror."""

    def __init__(self, world, topic, here, there):
        self.world, self.topic, self.remote = world, topic, world.remote(topic)
        self.context = world.context
        self.source, self.target = self.context.cluster("us-east"), self.context.cluster("eu-west")
        self.source.create_topic(topic, 1, 1, here)
        self.target.create_topic(self.remote, 1, 1, there)

    def becomes(self, **expected):
        """Wait until the remote topic's own configs are *expected*: a broker applies them late."""
        wanted = {name.replace("__", "."): value for name, value in expected.items()}
        until(lambda: own_settings(self.target, self.remote) == wanted, f"it has {wanted}", 30)

    def sync(self):
        TopicConfigSync(self.context, self.world.config.flow(FLOW)).sync()


def own_settings(cluster, topic):
    found = cluster.topic_configs([topic])[topic]
    return {
        name: setting.value
        for name, setting in found.items()
        if setting.source == DYNAMIC_TOPIC_CONFIG
    }


@pytest.fixture
def pair(world, unique_topic):
    def make(here, there, **keys):
        keys = {key.replace("__", "."): value for key, value in keys.items()}
        return Pair(world(unique_topic, **keys), unique_topic, here, there)

    return make


def test_sync_topic_configs(pair):
    """Like MirrorConnectorsIntegrationBaseTest.testSyncTopicConfigs."""
    both = pair(
        {"retention.bytes": "1000", "delete.retention.ms": "1000"},
        {"retention.bytes": "2000", "delete.retention.ms": "2000"},
        config__properties__exclude=EXCLUDED,
    )

    both.sync()

    both.becomes(retention__bytes="1000", delete__retention__ms="2000")


def test_replicate_source_default(pair):
    """Like MirrorConnectorsIntegrationBaseTest.testReplicateSourceDefault."""
    both = pair(
        {},
        {"retention.bytes": "2000", "delete.retention.ms": "2000"},
        **{f"{FLOW}.use.defaults.from": "source"},
        config__properties__exclude=EXCLUDED,
    )

    both.sync()

    until(lambda: own_settings(both.target, both.remote)["retention.bytes"] == "-1", "it follows")
    assert own_settings(both.target, both.remote)["delete.retention.ms"] == "2000"


def test_replicate_target_default(pair):
    """Like MirrorConnectorsIntegrationBaseTest.testReplicateTargetDefault."""
    both = pair({"retention.bytes": "1000"}, {"retention.bytes": "1000"})
    both.source.alter_topic_configs({both.topic: {"retention.bytes": None}})
    until(lambda: not own_settings(both.source, both.topic), "the source's own setting is gone", 30)

    both.sync()

    both.becomes()


def test_the_timestamp_type_of_an_existing_topic_is_not_changed(pair):
    here = {
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.after.max.ms": "1000",
        "retention.bytes": "1000",
    }
    both = pair(
        here, {"message.timestamp.before.max.ms": "7"}, config__properties__exclude=EXCLUDED
    )

    both.sync()

    both.becomes(message__timestamp__before__max__ms="7", retention__bytes="1000")


def test_configs_that_are_equal_are_not_altered_again(pair, monkeypatch):
    both = pair({"retention.ms": "1000"}, {})
    both.sync()
    both.becomes(retention__ms="1000")
    sent = []
    monkeypatch.setattr(both.target, "alter_topic_configs", lambda c: sent.append(c) or {})

    both.sync()

    assert sent == [{}]


def test_a_topic_with_a_refused_config_is_logged_once_and_the_others_are_synced(
    world, names, source, target, caplog
):
    # Kafka refuses a min.compaction.lag.ms above max.compaction.lag.ms.
    refused, accepted = names("refused"), names("accepted")
    here = world(refused, accepted, **{"config.properties.exclude": r"max\\.compaction\\.lag\\.ms"})
    for topic in (refused, accepted):
        create_topic(source.bootstrap_servers, topic, min_compaction_lag_ms=5_000)
    create_topic(target.bootstrap_servers, here.remote(refused), max_compaction_lag_ms=1_000)
    create_topic(target.bootstrap_servers, here.remote(accepted))
    settings = TopicConfigSync(here.context, here.config.flow(FLOW))

    settings.sync()
    settings.sync()

    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert [
        here.remote(refused) in line and "max.compaction.lag.ms" in line for line in warnings
    ] == [True]
    eu_west = here.context.cluster("eu-west")
    until(
        lambda: "min.compaction.lag.ms" in own_settings(eu_west, here.remote(accepted)), "it has it"
    )


@pytest.mark.story
def test_a_running_mirror_makes_the_config_changes_that_plan_listed(world, source, unique_topic):
    create_topic(source.bootstrap_servers, unique_topic, retention_bytes=1_000_000)
    produce(source.bootstrap_servers, unique_topic, [Record(b"k", b"v")])
    here = world(unique_topic, **{"sync.topic.configs.interval.seconds": "1"})
    here.mirror()
    remote, us_east, eu_west = here.remote(unique_topic), *map(here.context.cluster, ALIASES)
    made_with = own_settings(eu_west, remote)
    us_east.alter_topic_configs({unique_topic: {"retention.bytes": None, "segment.ms": "9000"}})
    until(lambda: "segment.ms" in own_settings(us_east, unique_topic), "the source has it")

    (flow,) = here.answer("plan")["flows"]
    here.start()
    until(lambda: own_settings(eu_west, remote) != made_with, "the remote topic's settings follow")

    assert flow["alter"] == [
        {
            "topic": remote,
            "configs": {"retention.bytes": None, "segment.ms": "9000"},
            "before": {"retention.bytes": "1000000", "segment.ms": "604800000"},
        }
    ]
    kept = {"retention.ms": "-1", **UNCHANGED_TIMESTAMPS}
    assert made_with == {"retention.bytes": "1000000", **kept}
    assert own_settings(eu_west, remote) == {"segment.ms": "9000", **kept}
    until(lambda: f"configs of {remote} on eu-west: " in here.log(), "the change is logged")
