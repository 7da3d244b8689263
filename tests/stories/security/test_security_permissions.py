"""Permissions that deltamirror needs, found by trying; docs/security.md lists exactly these."""

import logging
import re
import shlex
from dataclasses import replace
from itertools import pairwise

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from deltamirror.cli.main import main
from resources.kafka.cluster import KafkaCluster
from schemas.kafka.acl import Permission
from tests.support.brokers import (
    ROOT,
    Record,
    commit_group,
    committed_offsets,
    consume_all,
    create_topic,
    high_watermarks,
    produce,
)
from tests.support.secured_broker import MIRROR, WAIT_S, log_in, secured_brokers
from tests.support.world import FLOW, World

pytestmark = [pytest.mark.kafka, pytest.mark.story]

LACKS = re.compile(r"cluster (\S+) refused to [^\n]*? lacks (\w+) on ([\w-]+) (\S+?)(\*?) \(")
TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,  # confluent-kafka's name
}
ROUNDS = 20
# Without this permission the source returns no ACL and no error, so no error can name it.
TO_SEE_ACLS = Permission("Describe", "cluster", "kafka-cluster")
IMPLIED = {  # operations that imply this one in Kafka
    "Describe": {"Read", "Write", "Alter", "Delete"},
    "DescribeConfigs": {"AlterConfigs"},
}


@pytest.fixture
def here(tmp_path):
    """A world whose user has no permission, with records, a group and a setting to mirror."""
    with secured_brokers(tmp_path, "us-east", "eu-west") as (_, (source, target)):
        extra = {"security.protocol": "SASL_PLAINTEXT", **log_in("PLAIN", MIRROR)}
        extra |= {"emit.heartbeats.enabled": "true", "heartbeats.replication.enabled": "true"}
        extra |= {"heartbeats.topic.replication.factor": "1", f"{FLOW}.groups": "billing"}
        extra |= {"sync.group.offsets.enabled": "true", "emit.offset-syncs.enabled": "true"}
        extra |= {"offset-syncs.topic.replication.factor": "1"}
        extra |= {"checkpoints.topic.replication.factor": "1"}
        extra |= {f"{b.name}.bootstrap.servers": b.at("SASL") for b in (source, target)}
        create_topic(source.bootstrap_servers, "orders", partitions=2)
        records = [Record(b"k", b"v%d" % n, partition=n % 2) for n in range(40)]
        produce(source.bootstrap_servers, "orders", records)
        commit_group(source.bootstrap_servers, "billing", {("orders", 0): 5})
        yield World(tmp_path, source, target, ["orders"], extra)


def grant(here, alias, permission):
    """Create an ACL, as kafka-acls.sh does."""
    broker = {"us-east": here.source, "eu-west": here.target}[alias]
    prefixed = ResourcePatternType.PREFIXED if permission.is_prefix else ResourcePatternType.LITERAL
    binding = AclBinding(
        TYPES[permission.resource],
        permission.name,
        prefixed,
        f"User:{MIRROR}",
        "*",
        getattr(AclOperation, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", permission.operation).upper()),
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_acls([binding])[binding].result(WAIT_S)


def ask(here, caplog):
    """Mirror one more record; return the exit code and the missing permissions.

    Without a new record, a run might not need the permissions to write.
    """
    produce(here.source.bootstrap_servers, "orders", [Record(b"k", b"news")])
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        done = CliRunner().invoke(main, ["run", "--until-caught-up", "--config", str(here.path)])
    assert "Traceback" not in done.output
    missing = LACKS.findall(done.output + caplog.text)
    return done.exit_code, {(at, Permission(*fields, bool(star))) for at, *fields, star in missing}


def grant_what_is_asked_for(here, caplog):
    """Mirror and grant missing permissions until none is missing; return the granted ones."""
    granted = set()
    for _ in range(ROUNDS):
        code, missing = ask(here, caplog)
        assert missing or code == 0
        assert not missing & granted
        if not missing:
            return granted
        for alias, permission in missing:
            grant(here, alias, permission)
        granted |= missing
    raise AssertionError(f"still something missing: {missing}")


def change(here):
    """Change the source: a partition, a setting, a record, a commit."""
    servers = here.source.bootstrap_servers
    cluster = KafkaCluster("us-east", {"bootstrap.servers": servers})
    cluster.add_partitions("orders", 3)
    assert cluster.alter_topic_configs({"orders": {"max.message.bytes": "2000000"}}) == {}
    produce(servers, "orders", [Record(b"k", b"late")])
    commit_group(servers, "billing", {("orders", 0): 6})


def least(granted):
    """Return *granted* without the permissions that others imply."""
    return {
        (alias, p)
        for alias, p in granted
        if not any(
            (alias, replace(p, operation=o)) in granted for o in IMPLIED.get(p.operation, ())
        )
    }


def listed():
    """Return the permissions in the commands of docs/security.md."""
    page = (ROOT / "docs" / "security.md").read_text().replace("\\\n", " ")
    commands = [shlex.split(line) for line in page.splitlines() if "kafka-acls.sh --boot" in line]
    found = set()
    for words in commands:
        fields = list(pairwise(words))
        at = dict(fields)
        (resource,) = (each for each in TYPES if f"--{each}" in words)
        is_prefix = at.get("--resource-pattern-type") == "prefixed"
        for name, operation in fields:
            if name == "--operation":
                called = "kafka-cluster" if resource == "cluster" else at[f"--{resource}"]
                needed = Permission(operation, resource, called, is_prefix)
                found.add((at["--bootstrap-server"].lower(), needed))
    return found


def test_each_missing_permission_is_named_and_the_page_lists_exactly_the_needed_ones(here, caplog):
    granted = grant_what_is_asked_for(here, caplog)
    change(here)
    grant(here, "us-east", TO_SEE_ACLS)
    granted |= {("us-east", TO_SEE_ACLS)} | grant_what_is_asked_for(here, caplog)
    with here.path.open("a") as file:
        file.write("offset-syncs.topic.location = target\n")
    granted |= grant_what_is_asked_for(here, caplog)

    there = here.target.bootstrap_servers
    written = consume_all(here.source.bootstrap_servers, "orders")
    assert len(consume_all(there, "us-east.orders")) == len(written) > 41
    assert len(high_watermarks(there, "us-east.orders")) == 3
    assert len(consume_all(there, "us-east.checkpoints.internal")) == 2
    resumes_at = here.answer("translate", "--flow", FLOW, "--group", "billing")["partitions"][0]
    assert committed_offsets(there, "billing") == {
        ("us-east.orders", 0): resumes_at["downstream_offset"]
    }
    assert consume_all(there, "us-east.heartbeats")
    assert least(granted) == listed()
