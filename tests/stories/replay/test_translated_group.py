"""A group stops on the source and resumes on the target: no record is repeated or skipped.

The test itself writes the records to the target, in its own transactions, so that each step of the
translation is tested separately. `test_failover` does the same with the loop.
"""

import dataclasses

import numpy as np
import pytest

from deltamirror.context import MirrorContext
from deltamirror.groups.checkpoints import write_checkpoints
from deltamirror.groups.snapshots import snapshot_groups
from pipeline.offset_map.encode import encode_runs
from schemas.config.config import ClusterConfig
from schemas.mm2.name_filter import NameFilter
from tests.support.brokers import Record, commit_group, consume_all, create_topic, produce
from tests.support.lake import FLOW, ORDERS, config, replay
from tests.support.mm2_java_classes import mm2_tools, translate_offsets

pytestmark = pytest.mark.kafka


def records(*numbers):
    return [Record(b"k", b"%d" % n) for n in numbers]


@pytest.fixture
def context(lake, source, target, unique_topic, names):
    """A flow of one topic and one group between the two real clusters."""
    clusters = {}
    for alias, broker in (("us-east", source), ("eu-west", target)):
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        clusters[alias] = ClusterConfig(alias, broker.bootstrap_servers, servers, servers, servers)
    plain = config(
        lake,
        topics=NameFilter((unique_topic,)),
        groups=NameFilter((names("billing"),)),
        emit_checkpoints_interval_s=60.0,
    )
    context = MirrorContext(dataclasses.replace(plain, clusters=clusters))
    yield context
    context.close()


def write_with_gaps(bootstrap, topic, transactional_id):
    """Write values 0 to 8 in transactions, with an aborted transaction between them."""
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, records(0, 1, 2), transactional_id=transactional_id)
    produce(bootstrap, topic, records(7, 7), transactional_id=transactional_id, commit=False)
    produce(bootstrap, topic, records(3, 4), transactional_id=transactional_id)
    produce(bootstrap, topic, records(5, 6, 7, 8))


def carry_over(context, source, target, topic, transactional_id):
    """Write the topic's committed records to the target in two transactions; store the map."""
    upstream = consume_all(source.bootstrap_servers, topic)
    remote = f"us-east.{topic}"
    create_topic(target.bootstrap_servers, remote)
    copies = [Record(message.key(), message.value()) for message in upstream]
    for half in (copies[:4], copies[4:]):
        produce(target.bootstrap_servers, remote, half, transactional_id=transactional_id)
    downstream = consume_all(target.bootstrap_servers, remote)
    runs = encode_runs(*(np.array([m.offset() for m in side]) for side in (upstream, downstream)))
    topic_id = context.cluster("us-east").topics([topic])[topic].topic_id
    for_map = dataclasses.replace(ORDERS, topic=topic)
    rows = [(run.upstream_start, run.downstream_start, run.length) for run in runs]
    replay(context, *rows, partition=for_map, incarnation=topic_id)
    return upstream, downstream


def test_a_group_resumes_at_its_next_record_wherever_it_stopped(
    context, source, target, unique_topic, names
):
    write_with_gaps(source.bootstrap_servers, unique_topic, names("app"))
    upstream, downstream = carry_over(context, source, target, unique_topic, names("replay"))
    end = upstream[-1].offset() + 1

    for committed in range(end + 1):
        commit_group(source.bootstrap_servers, names("billing"), {(unique_topic, 0): committed})
        assert snapshot_groups(context, "us-east").changed == 1
        (checkpoint,) = write_checkpoints(context, context.config.flows[0])

        unread = [m.value() for m in upstream if m.offset() >= committed]
        resumes_at = checkpoint["downstream_offset"]
        assert [m.value() for m in downstream if m.offset() >= resumes_at] == unread


def test_mirrormaker_2s_own_tool_reads_our_checkpoints(
    context, source, target, unique_topic, names
):
    write_with_gaps(source.bootstrap_servers, unique_topic, names("app"))
    carry_over(context, source, target, unique_topic, names("replay"))
    commit_group(source.bootstrap_servers, names("billing"), {(unique_topic, 0): 3})
    snapshot_groups(context, "us-east")
    (checkpoint,) = write_checkpoints(context, context.config.flows[0])

    with mm2_tools() as tools:
        found = translate_offsets(tools, target.bootstrap_servers, FLOW.source, names("billing"))

    assert found == {(f"us-east.{unique_topic}", 0): checkpoint["downstream_offset"]}
