"""ACLs of topics on a broker with an authorizer, and on one without."""

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from demo.kafka.brokers import Broker, running_brokers
from resources.kafka.cluster import KafkaCluster
from schemas.kafka.acl import TopicAcl
from tests.support.world import until

pytestmark = pytest.mark.kafka

READ = TopicAcl("orders", "User:bob", "*", "READ", "ALLOW")
DENIED = TopicAcl("*", "User:amy", "10.0.0.1", "DESCRIBE_CONFIGS", "DENY")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    guard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    properties = {"authorizer.class.name": guard, "super.users": "User:ANONYMOUS"}
    broker = Broker("guarded", tmp_path_factory.mktemp("guarded"), properties=properties)
    with running_brokers(broker):
        yield broker


def cluster(broker):
    return KafkaCluster("eu-west", {"bootstrap.servers": broker.bootstrap_servers})


def listed(there, *principals):
    return {acl for acl in there.topic_acls() if acl.principal in principals}


def test_created_acls_are_listed_and_creating_them_twice_is_no_error(guarded):
    there = cluster(guarded)

    assert there.create_acls([READ, DENIED]) == {}
    assert there.create_acls([READ]) == {}

    until(lambda: listed(there, "User:bob", "User:amy") == {READ, DENIED}, "both are listed", 30)


def test_acls_of_prefixes_and_of_groups_are_not_listed(guarded):
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap_servers})
    bindings = [
        AclBinding(kind, "x", pattern, "User:x", "*", AclOperation.READ, AclPermissionType.ALLOW)
        for kind, pattern in (
            (ResourceType.TOPIC, ResourcePatternType.PREFIXED),
            (ResourceType.GROUP, ResourcePatternType.LITERAL),
            (ResourceType.TOPIC, ResourcePatternType.LITERAL),
        )
    ]
    for made in admin.create_acls(bindings).values():
        made.result(30)

    there, expected = cluster(guarded), {TopicAcl("x", "User:x", "*", "READ", "ALLOW")}
    until(lambda: listed(there, "User:x") == expected, "only the topic's ACL is listed", 30)


def test_a_cluster_without_an_authorizer_lists_no_acls_and_refuses_to_create_any(source):
    there = cluster(source)

    assert there.topic_acls() == set()
    assert {acl: error.code for acl, error in there.create_acls([READ]).items()} == {
        READ: "SECURITY_DISABLED"
    }
