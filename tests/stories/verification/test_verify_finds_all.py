"""`verify` finds no difference in a mirrored world, and exactly the differences planted later."""

import json
from collections import defaultdict
from itertools import count

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from deltamirror.control import PAUSE, ControlTable
from deltamirror.verification.verify import verify
from resources.delta.table import LakeTable
from resources.spark.session import spark_session
from schemas.errors.base import NotCaughtUpError
from schemas.errors.source import TopicMissingError
from schemas.kafka.partition import TopicPartition, slot_of
from schemas.replay.slot_work import Progress
from schemas.tables import VERIFICATION
from schemas.verification import EXPLAINED, KINDS
from tests.stories.verification.planting import (
    altered,
    double,
    files_of,
    rewrite,
    stage_by_hand,
    swapped,
    without,
)
from tests.support.brokers import Record, create_topic, produce
from tests.support.world import FLOW

pytestmark = [pytest.mark.kafka, pytest.mark.story]

NONE = dict.fromkeys((*KINDS, *EXPLAINED), 0)
SIZE = 40


@pytest.fixture
def topics(source, names):
    """Create filled topics, each in its own slot, so that a file of the stage has one topic."""
    taken = set()

    def make(*words):
        found = {}
        for word in words:
            name = next(n for i in count() if slot_of(n := names(f"{word}{i}"), 0) not in taken)
            taken.add(slot_of(name, 0))
            found[word] = name
            fill(source.bootstrap_servers, name, names("app"))
        return found

    return make


def fill(bootstrap, topic, transaction):
    """Write 40 records, some in transactions, with an aborted one between them."""
    create_topic(bootstrap, topic)
    records = [
        Record(b"k%d" % (i % 7), b"%s-%d" % (topic.encode(), i), [("h", b"%d" % i)], 1_000 + i)
        for i in range(SIZE)
    ]
    produce(bootstrap, topic, records[:10])
    produce(bootstrap, topic, records[10:20], transactional_id=transaction)
    produce(bootstrap, topic, records[:5], transactional_id=transaction, commit=False)
    produce(bootstrap, topic, records[20:])


def by_topic(found):
    sums = defaultdict(dict)
    for each in found.partitions:
        sums[each.partition.topic] = each.counts
    return sums


def more(number=4):
    return [Record(b"k", b"more-%d" % i, timestamp=2_000 + i) for i in range(number)]


def send_instead(here, topic, sent, mapped=()):
    """Stage four more records of *topic*, but write *sent* to the target and record it as done.

    *mapped* has, for each of the first records, its mapped distance after the target's end.
    """
    context, remote = here.context, TopicPartition(here.remote(topic), 0)
    group = context.config.flow(FLOW).flow.progress_group
    offset, metadata = context.cluster("eu-west").committed_offsets(group, [remote])[remote]
    ControlTable(context.lake.control).add_request(PAUSE, FLOW, topic)
    produce(here.source.bootstrap_servers, topic, more())
    with pytest.raises(NotCaughtUpError):
        here.mirror()
    end = context.cluster("eu-west").watermarks([remote])[remote].high
    produce(here.target.bootstrap_servers, remote.topic, sent)
    progress = Progress.read(offset, metadata)
    context.cluster("eu-west").commit_offsets(group, {remote: (offset + 4, progress.metadata)})
    runs = context.lake.offset_map(context.config.flow(FLOW).flow)
    for number, behind in enumerate(mapped):
        runs.append(
            [
                {
                    "topic": topic, "incarnation": progress.incarnation, "partition": 0,
                    "upstream_start": offset + number, "target_topic": remote.topic,
                    "target_topic_id": progress.target_topic_id, "target_partition": 0,
                    "downstream_start": end + behind, "length": 1, "run_id": "planted",
                    "committed_at": 1,
                }
            ]
        )  # fmt: skip


def test_exactly_the_differences_planted_in_the_stage_are_found(world, topics):
    named = topics("deleted", "changed", "swapped", "doubled", "shortened", "untouched")
    here = world(*named.values())
    here.mirror()
    context = here.context
    clean = verify(context)
    assert clean.is_same, clean.to_json()
    assert clean.totals == {"records": SIZE * len(named), **NONE}

    records, (file,) = files_of(context, named["deleted"])
    (records.path / file.path).unlink()
    rewrite(context, named["changed"], altered(4))
    rewrite(context, named["swapped"], swapped)
    double(context, named["doubled"])
    rewrite(context, named["shortened"], without(37, 38, 39))
    found = verify(context)

    counts = by_topic(found)
    assert counts[named["deleted"]] == NONE | {"lost": SIZE}
    assert counts[named["changed"]] == NONE | {"altered": 1}
    assert counts[named["swapped"]] == NONE | {"altered": 2, "reordered": 2}
    assert counts[named["doubled"]] == NONE | {"duplicated": SIZE}
    assert counts[named["shortened"]] == NONE | {"lost": 3}
    assert counts[named["untouched"]] == NONE
    alone = verify(context, topics=[named["changed"]], sides=["staged"])
    assert alone.totals["altered"] == 1
    with pytest.raises(TopicMissingError):
        verify(context, topics=["no-such-topic"])


def deleted_by_deltalake(path, where):
    DeltaTable(str(path)).delete(where)


def deleted_by_spark(path, where):
    spark_session().sql(f"DELETE FROM delta.`{path}` WHERE {where}").collect()


@pytest.mark.parametrize("delete", [deleted_by_deltalake, deleted_by_spark])
def test_a_record_that_another_program_deleted_from_the_stage_is_reported(world, topics, delete):
    named = topics("deleted", "untouched")
    here = world(*named.values())
    here.mirror()
    path = files_of(here.context, named["deleted"])[0].path
    delete(path, f"topic = '{named['deleted']}' AND offset = 15")

    whole = verify(here.context)
    alone = here.cli("verify", "--staged", "--format", "json")

    counts = by_topic(whole)
    assert counts[named["deleted"]] == NONE | {"lost": 1}
    assert counts[named["untouched"]] == NONE
    assert whole.errors == []
    answer = json.loads(alone.stdout)
    (difference,) = answer["differences"]
    assert alone.returncode == 1
    assert (answer["lost"], answer["altered"]) == (1, 0)
    assert (difference["topic"], difference["kind"]) == (named["deleted"], "lost")
    assert "1 of 40 records staged in" in difference["detail"]


def test_a_comparison_with_the_source_finds_differences_that_the_recorded_digests_do_not_show(
    world, topics
):
    named = topics("sealed-empty", "left-out", "altered", "swapped")
    here = world(*named.values())
    here.mirror()
    changes = [without(0, 1, 2, 3), without(1, 3), altered(2), swapped]
    for topic, change in zip(named.values(), changes, strict=True):
        produce(here.source.bootstrap_servers, topic, more())
        stage_by_hand(here.context, topic, change)
    here.mirror()

    assert verify(here.context, sides=["staged", "target"]).is_same
    found = verify(here.context, sides=["source", "staged"])

    counts = by_topic(found)
    assert counts[named["sealed-empty"]] == NONE | {"lost": 4}
    assert counts[named["left-out"]] == NONE | {"lost": 2}
    assert counts[named["altered"]] == NONE | {"altered": 1}
    assert counts[named["swapped"]] == NONE | {"altered": 2}
    assert {d.sides for each in found.partitions for d in each.differences} == {
        ("source", "staged")
    }


def test_exactly_the_differences_planted_on_the_target_are_found(world, topics):
    named = topics("copied", "never-sent", "late", "changed")
    here = world(*named.values())
    here.mirror()
    first = here.arrived(named["copied"])[3]
    copy = Record(first.key(), first.value(), first.headers(), first.timestamp()[1])
    stranger = Record(b"k", b"not ours")
    produce(here.target.bootstrap_servers, here.remote(named["copied"]), [copy, stranger])
    one, two, three, four = more()
    send_instead(here, named["never-sent"], [])
    send_instead(here, named["late"], [two, three, four, one])
    other = Record(b"k", b"changed", timestamp=2_001)
    send_instead(here, named["changed"], [one, other, three, four], mapped=range(4))

    found = verify(here.context)

    counts = by_topic(found)
    assert counts[named["copied"]] == NONE | {"duplicated": 1, "foreign": 1}
    assert counts[named["never-sent"]] == NONE | {"lost": 4}
    assert counts[named["late"]] == NONE | {"reordered": 3}
    assert counts[named["changed"]] == NONE | {"altered": 1}
    assert {d.sides for each in found.partitions for d in each.differences} == {
        ("staged", "target")
    }


def test_verify_exits_with_1_and_names_the_first_differences_and_their_sides(world, topics):
    named = topics("changed")
    here = world(*named.values())
    here.mirror()
    assert here.cli("verify").returncode == 0
    rewrite(here.context, named["changed"], altered(4))

    shown = here.cli("verify")
    done = here.cli("verify", "--format", "json")

    assert (shown.returncode, done.returncode) == (1, 1)
    assert f"verified {SIZE} records: 0 lost, 0 duplicated, 0 reordered, 1 altered" in shown.stdout
    assert f"altered {named['changed']}[0]@4 (source, staged)" in shown.stderr
    answer = json.loads(done.stdout)
    (difference,) = answer["differences"]
    assert (difference["flow"], difference["topic"]) == (FLOW, named["changed"])
    assert (difference["partition"], difference["offset"]) == (0, 4)
    assert (difference["kind"], difference["sides"]) == ("altered", ["source", "staged"])
    table_path = here.context.lake.flow_table(
        here.context.config.flow(FLOW).flow, VERIFICATION
    ).path
    kept = LakeTable(table_path, VERIFICATION).rows(["altered"]).column("altered").to_pylist()
    assert sorted(kept) == [0, 1, 1]


def test_a_cluster_that_is_down_is_an_error_of_its_side_and_the_others_are_compared(
    world, make_broker, target, unique_topic, names
):
    alone = make_broker("down")
    fill(alone.bootstrap_servers, unique_topic, names("app"))
    here = world(unique_topic, **{"us-east.bootstrap.servers": alone.bootstrap_servers})
    here.mirror()
    alone.kill()

    found = verify(here.context)

    assert [error["type"] for error in found.errors] == ["UnreachableError"]
    assert not found.is_same
    assert found.totals == {"records": SIZE, **NONE}


def test_an_open_transaction_on_the_target_is_reported_and_the_records_before_it_are_compared(
    world, topics, names, monkeypatch
):
    monkeypatch.setattr("deltamirror.verification.verify.TRANSACTION_WAIT_S", 0.5)
    (topic,) = topics("hanging").values()
    here = world(topic)
    here.mirror()
    producer = Producer(
        {"bootstrap.servers": here.target.bootstrap_servers, "transactional.id": names("open")}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(here.remote(topic), b"open", partition=0)
    assert producer.flush(30) == 0
    produce(here.source.bootstrap_servers, topic, more())
    here.mirror()

    hidden = verify(here.context)
    producer.commit_transaction(30)
    shown = verify(here.context)

    assert [error["type"] for error in hidden.errors] == ["TargetHeldBackError"]
    assert hidden.totals == {"records": SIZE + 4, **NONE}
    assert shown.is_same
    assert shown.totals == {"records": SIZE + 4, **NONE, "foreign": 1}


def test_records_that_left_the_source_after_staging_are_explained_and_not_lost(world, topics):
    (topic,) = topics("expired").values()
    here = world(topic)
    here.mirror()
    admin = AdminClient({"bootstrap.servers": here.source.bootstrap_servers})
    (deleted,) = admin.delete_records([KafkaPartition(topic, 0, 13)]).values()
    deleted.result(30)

    found = verify(here.context)

    assert found.is_same
    assert found.totals == {"records": SIZE, **NONE, "gone_upstream": 13}


def test_both_incarnations_of_a_re_created_topic_are_compared(world, topics, source, names):
    (topic,) = topics("again").values()
    here = world(topic)
    here.mirror()
    admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(30)
    _make(source.bootstrap_servers, topic, names("second"))
    here.mirror()
    assert verify(here.context).totals == {"records": 2 * SIZE, **NONE}

    records, (first, _) = files_of(here.context, topic)
    (records.path / first.path).unlink()
    found = verify(here.context)

    assert found.totals == {"records": SIZE, **NONE, "lost": SIZE}


def _make(bootstrap, topic, transaction):
    """Fill *topic* as soon as the broker has removed the deleted topic of this name."""
    for _ in range(100):
        try:
            fill(bootstrap, topic, transaction)
        except KafkaException:
            continue
        return
    raise TimeoutError(topic)
