import pytest

from schemas.mm2.replication_policy import DefaultPolicy, IdentityPolicy, is_cycle

DEFAULT = DefaultPolicy()
IDENTITY = IdentityPolicy(source_alias="A")


def test_a_remote_topic_begins_with_its_source_alias():
    remote = DEFAULT.remote_topic("us-east", "orders")

    assert remote == "us-east.orders"
    assert DEFAULT.source_of(remote) == "us-east"
    assert DEFAULT.upstream_topic(remote) == "orders"


@pytest.mark.parametrize(
    ("topic", "source", "upstream"),
    [
        pytest.param("orders", None, None, id="a topic of its own cluster"),
        pytest.param("my.topic.v1", "my", "topic.v1", id="a topic with a dot counts as remote"),
        pytest.param(".orders", "", "orders", id="an empty alias"),
        pytest.param("orders.", None, None, id="Java's split drops an empty last part"),
        pytest.param("a..", None, None, id="Java's split drops two empty last parts"),
        pytest.param("a..b", "a", ".b", id="an empty part in the middle is kept"),
    ],
)
def test_a_name_is_parsed_as_mirrormaker_2_parses_it(topic, source, upstream):
    assert DEFAULT.source_of(topic) == source
    assert DEFAULT.upstream_topic(topic) == upstream


@pytest.mark.parametrize(
    ("topic", "internal"),
    [
        ("__consumer_offsets", True),
        (".hidden", True),
        ("mm2-offsets.us-east.internal", True),
        ("mm2-offset-syncs.eu-west.internal", True),
        ("us-east.checkpoints.internal", True),
        ("billing.internal", False),
        ("connect-configs-internal", False),
        ("mm2-orders", False),
        ("heartbeats", False),
    ],
)
def test_internal_topics_are_those_of_kip_1074(topic, internal):
    assert DEFAULT.is_internal(topic) is internal


def test_the_identity_policy_renames_heartbeats_only():
    assert IDENTITY.remote_topic("A", "orders") == "orders"
    assert IDENTITY.remote_topic("A", "heartbeats") == "A.heartbeats"
    assert IDENTITY.remote_topic("A", "team-heartbeats") == "A.team-heartbeats"
    assert IDENTITY.source_of("orders") == "A"
    assert IDENTITY.upstream_topic("orders") == "orders"
    assert IDENTITY.source_of("B.heartbeats") == "B"
    assert IDENTITY.upstream_topic("B.heartbeats") == "heartbeats"
    assert IDENTITY.source_of("heartbeats") is None
    assert IDENTITY.upstream_topic("heartbeats") is None


@pytest.mark.parametrize(
    ("topic", "cycle"),
    [
        ("orders", False),
        ("A.orders", False),
        ("B.orders", True),
        ("A.B.orders", True),
        ("team.B.events", True),
        ("team.B", False),
    ],
)
def test_a_topic_that_has_been_on_the_target_is_a_cycle(topic, cycle):
    assert is_cycle(DEFAULT, topic, "B") is cycle


def test_the_identity_policy_detects_cycles_only_by_its_own_alias():
    assert not is_cycle(IDENTITY, "B.orders", "B")
    assert is_cycle(IDENTITY, "B.heartbeats", "B")


def test_heartbeats_topics_are_recognised_over_any_number_of_clusters():
    assert DEFAULT.is_heartbeats_topic("heartbeats")
    assert DEFAULT.is_heartbeats_topic("A.C.heartbeats")
    assert not DEFAULT.is_heartbeats_topic("A.my-heartbeats")


def test_the_separator_applies_to_internal_topics_unless_they_have_their_own():
    joined, apart = DefaultPolicy("_", "_"), DefaultPolicy("_", ".")

    assert joined.checkpoints_topic("A") == "A_checkpoints_internal"
    assert joined.offset_syncs_topic("B") == "mm2-offset-syncs_B_internal"
    assert apart.remote_topic("A", "orders") == "A_orders"
    assert apart.checkpoints_topic("A") == "A.checkpoints.internal"
    assert apart.offset_syncs_topic("B") == "mm2-offset-syncs.B.internal"
    assert apart.is_internal("A.checkpoints.internal")
