from dataclasses import replace

import pytest

from pipeline.topics.acls import missing_acls
from schemas.kafka.acl import TopicAcl
from schemas.mm2.name_filter import NameFilter
from schemas.mm2.replication_policy import IdentityPolicy
from tests.support.lake import config

FLOW = replace(config("lake").flows[0], topics=NameFilter((".*",), ("secret",)))
READ = TopicAcl("orders", "User:bob", "*", "READ", "ALLOW")


def remote(acl, **changes):
    return replace(acl, topic="us-east.orders", **changes)


@pytest.mark.parametrize(
    ("permission", "operation", "becomes"),
    [
        ("ALLOW", "READ", "READ"),
        ("ALLOW", "ALL", "READ"),
        ("ALLOW", "WRITE", None),
        ("ALLOW", "DESCRIBE", "DESCRIBE"),
        ("ALLOW", "CREATE", "CREATE"),
        ("ALLOW", "ALTER", "ALTER"),
        ("ALLOW", "ALTER_CONFIGS", "ALTER_CONFIGS"),
        ("ALLOW", "DELETE", "DELETE"),
        ("DENY", "READ", "READ"),
        ("DENY", "WRITE", "WRITE"),
        ("DENY", "ALL", "ALL"),
    ],
)
def test_acls_are_copied_to_the_remote_topic_except_permission_to_write(
    permission, operation, becomes
):
    acl = replace(READ, permission=permission, operation=operation, host="10.0.0.1")

    expected = [remote(acl, operation=becomes)] if becomes else []
    assert missing_acls(FLOW, [acl], []) == expected


@pytest.mark.parametrize("topic", ["secret", "__consumer_offsets", "eu-west.orders"])
def test_acls_of_topics_that_are_not_replicated_are_not_copied(topic):
    assert missing_acls(FLOW, [replace(READ, topic=topic)], []) == []


def test_only_missing_acls_are_created_and_equal_ones_only_once():
    amy = replace(READ, principal="User:amy")
    may_all = replace(amy, operation="ALL")

    assert missing_acls(FLOW, [READ, amy, may_all], [remote(READ)]) == [remote(amy)]


def test_acls_that_exist_only_on_the_target_are_kept():
    assert missing_acls(FLOW, [], [remote(READ)]) == []


def test_an_acl_for_all_topics_is_treated_as_one_of_a_topic_named_star():
    of_all = replace(READ, topic="*")
    keeps_names = replace(FLOW, policy=IdentityPolicy(source_alias="us-east"))

    assert missing_acls(FLOW, [of_all], []) == [replace(READ, topic="us-east.*")]
    assert missing_acls(keeps_names, [of_all], []) == [of_all]
    assert missing_acls(replace(FLOW, topics=NameFilter(("orders",))), [of_all], []) == []
