"""Pending progress of a transaction that has ended does not stop a flow."""

import pytest

from deltamirror.verification.verify import verify
from schemas.config.flow import Flow
from schemas.kafka.partition import TopicPartition
from tests.support.brokers import Record, create_topic, produce
from tests.support.mm2_java_classes import mm2_tools
from tests.support.raw_groups import RawTransaction
from tests.support.world import FLOW, World

pytestmark = [pytest.mark.kafka, pytest.mark.story]


def test_progress_that_a_broker_accepted_too_late_is_aborted_and_replay_continues(
    tmp_path, source, make_broker, unique_topic
):
    # With verification a broker accepts late progress only in a race; without it, always.
    target = make_broker("late", properties={"transaction.partition.verification.enable": "false"})
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, [Record(b"k", b"a")] * 3)
    here = World(tmp_path, source, target, [unique_topic])
    here.mirror()
    flow, slot = Flow.parse(FLOW), TopicPartition(unique_topic, 0).slot
    with mm2_tools() as gateway:
        late = RawTransaction(gateway, target.bootstrap_servers, flow.progress_group)
        late.leave_hanging(flow.transactional_id(slot), here.remote(unique_topic), 0)
        late.close()
    produce(source.bootstrap_servers, unique_topic, [Record(b"k", b"b")] * 2)

    here.mirror()

    values = [message.value() for message in here.arrived(unique_topic)]
    assert values == [b"a"] * 3 + [b"b"] * 2
    assert verify(here.context).is_same
