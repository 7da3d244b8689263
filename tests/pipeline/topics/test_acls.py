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
def test_a_rule_holds_for_the_remote_topic_too_but_none_allows_writing(
    permission, operation, becomes
):
    acl = replace(READ, permission=permission, operation=operation, host="10.0.0.1")

    expected = [remote(acl, operation=becomes)] if becomes else []
    assert missing_acls(FLOW, [acl], []) == expected


@pytest.mark.parametrize("topic", ["secret", "__consumer_offsets", "eu-west.orders"])
def test_rules_of_topics_that_are_not_replicated_are_left_out(topic):
    assert missing_acls(FLOW, [replace(READ, topic=topic)], []) == []


def test_only_what_is_missing_is_made_and_rules_that_become_one_are_made_once():
    amy = replace(READ, principal="User:amy")
    may_all = replace(amy, operation="ALL")

    assert missing_acls(FLOW, [READ, amy, may_all], [remote(READ)]) == [remote(amy)]


def test_a_rule_that_is_on_the_target_alone_is_nobodys_business():
    assert missing_acls(FLOW, [], [remote(READ)]) == []


def test_a_rule_for_all_topics_goes_by_that_name():
    of_all = replace(READ, topic="*")
    keeps_names = replace(FLOW, policy=IdentityPolicy(source_alias="us-east"))

    assert missing_acls(FLOW, [of_all], []) == [replace(READ, topic="us-east.*")]
    assert missing_acls(keeps_names, [of_all], []) == [of_all]
    assert missing_acls(replace(FLOW, topics=NameFilter(("orders",))), [of_all], []) == []
