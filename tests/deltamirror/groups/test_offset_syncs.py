"""Write the offset syncs that a replay loop recorded: in order and once."""

import pytest

from deltamirror.groups import offset_syncs as module
from deltamirror.groups.offset_syncs import OffsetSyncs
from schemas.config.config import OffsetSyncsConfig
from schemas.errors.environment import UnreachableError
from schemas.kafka.partition import TopicPartition
from schemas.mm2.records import OffsetSync
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import CommittedBatch, Progress
from tests.support.lake import FLOW, ORDERS, REMOTE, ScriptedContext

CONFIG = OffsetSyncsConfig("us-east", "mm2-offset-syncs.eu-west.internal", 100, 1)


@pytest.fixture
def topic(monkeypatch):
    """Return a fake topic class whose list *records* has the syncs written to it."""

    class Topic:
        is_created, is_down, records = False, False, []

        def __init__(self, cluster, name, _):
            assert (cluster.alias, name) == ("us-east", "mm2-offset-syncs.eu-west.internal")

        def ensure_exists(self, replication_factor):
            Topic.is_created = True

        def write(self, some):
            if Topic.is_down:
                raise UnreachableError("us-east", servers="localhost:1", reason="down")
            Topic.records.extend(OffsetSync.read(*record) for record in some)

    monkeypatch.setattr(module, "CompactedTopic", Topic)
    return Topic


@pytest.fixture
def syncs(lake, topic):
    return OffsetSyncs(ScriptedContext(lake), FLOW, CONFIG)


def move(*run, partition=ORDERS):
    after = Progress(run[0] + run[2], "life1", "target1")
    return CommittedBatch(partition, REMOTE, None, after, (OffsetRun(*run),), run[2])


def offset_pairs(topic):
    return [(sync.upstream_offset, sync.downstream_offset) for sync in topic.records]


def test_each_recorded_offset_sync_is_written_once(syncs, topic):
    syncs.replayed(FLOW, [move(0, 5, 2), move(2, 8, 2)])
    syncs.replayed(FLOW, [move(4, 11, 1)])

    assert syncs.write() == 5
    assert syncs.write() == 0
    assert offset_pairs(topic) == [(0, 5), (1, 6), (2, 8), (3, 9), (4, 11)]


def test_the_topic_is_created_before_any_record_is_replayed(syncs, topic):
    syncs.write()

    assert topic.is_created


def test_syncs_that_could_not_be_written_are_written_before_newer_ones(syncs, topic):
    topic.is_down = True
    syncs.replayed(FLOW, [move(0, 5, 1)])
    with pytest.raises(UnreachableError):
        syncs.write()
    syncs.replayed(FLOW, [move(1, 7, 1)])
    topic.is_down = False

    syncs.write()

    assert offset_pairs(topic) == [(0, 5), (1, 7)]


def test_while_the_cluster_is_down_the_newest_syncs_of_each_partition_are_kept(
    syncs, topic, monkeypatch
):
    monkeypatch.setattr(module, "MAX_PENDING_SYNCS", 2)
    other = TopicPartition("orders", 1)
    topic.is_down = True
    syncs.replayed(FLOW, [move(n, n, 1) for n in range(5)] + [move(9, 0, 1, partition=other)])
    with pytest.raises(UnreachableError):
        syncs.write()
    topic.is_down = False

    syncs.write()

    assert offset_pairs(topic) == [(3, 3), (4, 4), (9, 0)]
