"""A point-in-time replay writes staged records to a separate topic and changes nothing else."""

import dataclasses
import json

import pytest
from deltalake import DeltaTable

from deltamirror.context import MirrorContext
from deltamirror.maintenance.maintain import maintain
from deltamirror.replay.point_in_time import replay_point_in_time
from schemas.config.config import ClusterConfig
from schemas.errors.lake import NothingToReplayError, StageIncompleteError
from schemas.errors.target import ReplayTargetError
from schemas.kafka.partition import SourcePartition
from schemas.replay.point_in_time import Selection
from tests.support.brokers import Record, committed_offsets, consume_all, create_topic, produce
from tests.support.fake_context import InlineWorkers
from tests.support.lake import config
from tests.support.staged_lake import held, stage_records

pytestmark = pytest.mark.kafka

FLOW = "us-east->eu-west"
PARTITIONS = 2
RECORDS = 40


@pytest.fixture
def context(lake, source, target):
    clusters = {}
    for alias, broker in (("us-east", source), ("eu-west", target)):
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        clusters[alias] = ClusterConfig(alias, broker.bootstrap_servers, servers, servers, servers)
    plain = config(lake, producer=clusters["eu-west"].producer)
    context = MirrorContext(dataclasses.replace(plain, clusters=clusters, transaction_records=7))
    yield context
    context.close()


@pytest.fixture
def topic(context, unique_topic):
    """A topic of two partitions, staged in four commits; a record's time is its offset + 1."""
    times = {i: i + 1 for i in range(RECORDS)}
    for start in range(0, RECORDS, 10):
        stage_records(
            context,
            *((SourcePartition(unique_topic, "life1", p), start, start + 10) for p in range(2)),
            staged_at_ms=start,
            times=times,
        )
    return unique_topic


def replay(context, topic, target_topic=None, **wanted):
    return replay_point_in_time(
        context, FLOW, topic, Selection(**wanted), target_topic, workers=InlineWorkers()
    )


def content(messages):
    return [(m.partition(), m.timestamp(), m.key(), m.value(), m.headers() or []) for m in messages]


def offsets(messages, partition=0):
    return [int(m.key()) for m in messages if m.partition() == partition]


def test_the_same_plan_gives_the_same_records_in_the_same_order(context, topic, target):
    first, records = replay(context, topic, from_offset=3, to_offset=27)
    second, again = replay(context, topic, from_offset=3, to_offset=27)

    one, two = (
        consume_all(target.bootstrap_servers, plan.target_topic) for plan in (first, second)
    )
    assert first.ranges == second.ranges
    assert records == again == PARTITIONS * 24
    assert offsets(one, 0) == offsets(one, 1) == list(range(3, 27))
    assert content(one) == content(two)


def test_a_replay_as_of_a_time_gives_the_same_records_after_compaction(context, topic, target):
    before, _ = replay(context, topic, as_of_ms=15)
    for start in range(RECORDS, 2 * RECORDS, 10):  # compaction joins eight files of two slots
        partitions = (SourcePartition(topic, "life1", p) for p in range(PARTITIONS))
        stage_records(context, *((p, start, start + 10) for p in partitions), staged_at_ms=start)
    (done,) = maintain(context)
    after, _ = replay(context, topic, as_of_ms=15)

    one, two = (
        consume_all(target.bootstrap_servers, plan.target_topic) for plan in (before, after)
    )
    assert done.joined_into > 0
    assert offsets(one) == list(range(20))
    assert content(one) == content(two)


def test_a_replay_by_time_begins_at_the_offset_that_kafka_returns_for_it(context, topic, target):
    plan, records = replay(context, topic, from_time_ms=11, to_time_ms=31, partition=1)

    found = consume_all(target.bootstrap_servers, plan.target_topic)
    assert records == 20
    assert offsets(found, 1) == list(range(10, 30))


SELECTIONS = {
    "all": ({}, None),
    "partition": ({"partition": 1}, None),
    "as of a time": ({"as_of_ms": 15}, None),
    "inside the damaged segment": ({"from_offset": 12, "to_offset": 18}, None),
    "from the damaged segment on": ({"from_offset": 12}, None),
    "up to the damaged segment": ({"to_offset": 18}, None),
    "from a time in the damaged segment": ({"from_time_ms": 13}, None),
    "up to a time in the damaged segment": ({"to_time_ms": 18}, None),
    "outside the damaged segment": ({"from_offset": 22, "to_offset": 28}, 6 * PARTITIONS),
    "times outside it": ({"from_time_ms": 23, "to_time_ms": 29}, 6 * PARTITIONS),
}


@pytest.mark.parametrize(("wanted", "records"), SELECTIONS.values(), ids=SELECTIONS)
def test_a_replay_of_a_lake_in_which_a_record_was_deleted_is_exact_or_an_error(
    context, topic, target, wanted, records
):
    table = DeltaTable(str(context.lake.records("us-east").path))
    table.delete(f"topic = '{topic}' AND offset = 15")

    if records is not None:
        plan, sent = replay(context, topic, **wanted)
        found = consume_all(target.bootstrap_servers, plan.target_topic)
        assert len(found) == sent == records
        return
    with pytest.raises(StageIncompleteError, match=r"not all of the \d+ records"):
        replay(context, topic, **wanted)
    if context.lake.replays.exists():
        states = context.lake.replays.rows().sort_by("at_ms").column("state").to_pylist()
        assert states == ["planned", "failed"]


def test_a_replay_does_not_change_the_flow_and_has_its_own_offset_map(context, topic, target):
    flow = context.config.flows[0].flow
    plan, records = replay(context, topic)

    committed = committed_offsets(target.bootstrap_servers, f"deltamirror.replay.{plan.replay_id}")
    own_map = context.lake.offset_map(flow, plan.replay_id).rows().to_pylist()
    kept = context.lake.replays.rows().sort_by("at_ms").to_pylist()
    assert committed == {(plan.target_topic, p): RECORDS for p in range(PARTITIONS)}
    assert sum(run["length"] for run in own_map) == records == PARTITIONS * RECORDS
    assert not context.lake.offset_map(flow).exists()
    assert [row["state"] for row in kept] == ["planned", "done"]
    assert kept[-1]["records"] == records
    assert json.loads(kept[-1]["plan"])["version"] == plan.version


def test_a_dry_run_writes_nothing(context, topic):
    plan, records = replay_point_in_time(
        context, FLOW, topic, Selection(), dry_run=True, workers=InlineWorkers()
    )

    assert records == 0
    assert len(plan.ranges) == PARTITIONS
    assert context.cluster("eu-west").topics([plan.target_topic]) == {}
    assert not context.lake.replays.exists()


def test_a_target_topic_with_records_or_of_a_flow_is_refused(context, topic, target, names):
    used, empty = names("used"), names("empty")
    create_topic(target.bootstrap_servers, used, PARTITIONS)
    create_topic(target.bootstrap_servers, empty, PARTITIONS)
    produce(target.bootstrap_servers, used, [Record(b"k", b"v")])

    with pytest.raises(ReplayTargetError, match="not empty"):
        replay(context, topic, used)
    with pytest.raises(ReplayTargetError, match="is a remote topic of"):
        replay(context, topic, f"us-east.{topic}")
    with pytest.raises(NothingToReplayError):
        replay(context, topic, from_offset=RECORDS)
    _, records = replay(context, topic, empty)

    assert records == PARTITIONS * RECORDS
    staged = held(context, SourcePartition(topic, "life1", 0))
    assert len(next(iter(staged.values()))) == RECORDS
