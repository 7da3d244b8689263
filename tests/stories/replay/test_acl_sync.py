"""ACLs of source topics are created for remote topics, on brokers with an authorizer."""

import logging
from dataclasses import replace

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from deltamirror.topics.acls import TopicAclSync
from schemas.kafka.acl import TopicAcl
from tests.support.brokers import Record, create_topic, produce
from tests.support.secured_broker import MIRROR, log_in, secured_brokers
from tests.support.world import FLOW, World, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with secured_brokers(tmp_path_factory.mktemp("guarded"), "east", "west") as (_, brokers):
        yield brokers


@pytest.fixture
def between(tmp_path, unique_topic):
    made = []

    def make(source, target, **extra):
        extra = {"sync.topic.acls.interval.seconds": "1", **extra}
        made.append(World(tmp_path, source, target, [unique_topic], extra))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def read(unique_topic):
    return TopicAcl(unique_topic, "User:bob", "*", "READ", "ALLOW")


def syncs(world, context=None):
    return TopicAclSync(context or world.context, world.config.flow(FLOW))


def become(cluster, topic, *expected):
    """Wait until *topic* has the *expected* ACLs: a broker applies them after a delay."""

    def there():
        return {acl for acl in cluster.topic_acls() if acl.topic == topic}

    until(lambda: there() == set(expected), f"{topic} has {expected}")


def test_sync_topic_acls(guarded, between, read):
    """Like testSyncTopicACLsUseProvidedForwardingAdmin of MirrorMaker 2, with excluded ACLs."""
    here = between(*guarded)
    us_east, eu_west = here.context.cluster("us-east"), here.context.cluster("eu-west")
    describe, write = replace(read, operation="DESCRIBE"), replace(read, operation="WRITE")
    us_east.create_acls([read, describe, write])
    become(us_east, read.topic, read, describe, write)

    syncs(here).sync()

    remote = here.remote(read.topic)
    become(eu_west, remote, replace(read, topic=remote), replace(describe, topic=remote))


def test_an_acl_that_is_deleted_on_the_source_stays_and_none_is_created_twice(
    guarded, between, read, monkeypatch
):
    here = between(*guarded)
    context, remote = here.context, here.remote(read.topic)
    us_east, eu_west, sync = (
        context.cluster("us-east"),
        context.cluster("eu-west"),
        syncs(here, context),
    )
    gone = replace(read, principal="User:gone")
    us_east.create_acls([read, gone])
    become(us_east, read.topic, read, gone)
    sync.sync()
    both = {replace(acl, topic=remote) for acl in (read, gone)}
    become(eu_west, remote, *both)
    _delete(guarded[0], gone)
    become(us_east, read.topic, read)
    sent = []
    monkeypatch.setattr(eu_west, "create_acls", lambda acls: sent.extend(acls) or {})

    sync.sync()

    become(eu_west, remote, *both)
    assert sent == []


def test_a_source_that_returns_no_acls_is_logged_once(source, guarded, between, caplog):
    caplog.set_level(logging.INFO, "deltamirror.topics.acls")
    sync = syncs(between(source, guarded[1]))

    sync.sync()
    sync.sync()

    (line,) = [r for r in caplog.records if r.name == "deltamirror.topics.acls"]
    assert (line.levelname, "us-east returns no ACLs" in line.getMessage()) == ("INFO", True)


def test_a_target_without_an_authorizer_is_logged_once(guarded, target, between, read, caplog):
    caplog.set_level(logging.INFO, "deltamirror.topics.acls")
    here = between(guarded[0], target)
    here.context.cluster("us-east").create_acls([read])
    become(here.context.cluster("us-east"), read.topic, read)
    sync = syncs(here)

    sync.sync()
    sync.sync()

    (line,) = [r for r in caplog.records if r.name == "deltamirror.topics.acls"]
    assert line.levelname == "INFO"
    assert line.getMessage() == "ACLs are not synced: eu-west has no authorizer"


def test_a_missing_permission_to_create_acls_is_logged_once(guarded, between, read, caplog):
    east, west = guarded
    extra = {"security.protocol": "SASL_PLAINTEXT", **log_in("PLAIN", MIRROR)}
    extra = {f"eu-west.{key}": value for key, value in extra.items()}
    here = between(east, west, **extra, **{"eu-west.bootstrap.servers": west.at("SASL")})
    here.context.cluster("us-east").create_acls([read])
    become(here.context.cluster("us-east"), read.topic, read)
    sync = syncs(here)

    sync.sync()
    sync.sync()

    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert line.startswith("an ACL is missing on eu-west: cluster eu-west refused to create ACLs: ")
    assert "lacks Alter on cluster" in line


def test_a_running_mirror_creates_the_acls_that_plan_listed(guarded, between, read):
    here = between(*guarded)
    create_topic(guarded[0].bootstrap_servers, read.topic)
    produce(guarded[0].bootstrap_servers, read.topic, [Record(b"k", b"v")])
    here.context.cluster("us-east").create_acls([read])
    become(here.context.cluster("us-east"), read.topic, read)
    remote = here.remote(read.topic)

    (flow,) = here.answer("plan")["flows"]
    here.start()

    become(here.context.cluster("eu-west"), remote, replace(read, topic=remote))
    assert flow["acls"] == [
        {
            "topic": remote,
            "principal": "User:bob",
            "host": "*",
            "operation": "READ",
            "permission": "ALLOW",
        }
    ]
    until(lambda: f"allow User:bob READ on topic {remote}" in here.log(), "it is logged")


def _delete(broker, acl):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        acl.topic,
        ResourcePatternType.LITERAL,
        acl.principal,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for deleted in admin.delete_acls([wanted]).values():
        deleted.result(30)
