"""deltamirror continues where a real MirrorMaker 2 stopped or was killed."""

from __future__ import annotations

import json

import pytest

from deltamirror.verification.verify import verify
from schemas.errors.base import NotCaughtUpError
from tests.support.brokers import Record, commit_group, create_topic, delete_topic, produce
from tests.support.mm2_reference import mirror_maker
from tests.support.world import FLOW, World, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

PARTITIONS = 2


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    from demo.kafka.brokers import Broker, running_brokers

    home = tmp_path_factory.mktemp("kafka")
    both = [Broker(name, home / name) for name in ("source", "target")]
    with running_brokers(*both):
        yield both


@pytest.fixture
def here(tmp_path, brokers, unique_topic):
    return World(tmp_path, *brokers, [unique_topic])


def mm2(here, **entries):
    return mirror_maker(
        here.home / "mm2",
        here.clusters,
        {
            f"{FLOW}.enabled": "true",
            f"{FLOW}.topics": ", ".join(here.topics),
            "emit.heartbeats.enabled": "false",
            **entries,
        },
    )


def write(here, first, number, **options):
    (topic,) = here.topics
    records = [
        Record(b"k%d" % i, b"%d" % i, partition=i % PARTITIONS)
        for i in range(first, first + number)
    ]
    produce(here.source.bootstrap_servers, topic, records, **options)


def has_copied(here, number):
    def look():
        (topic,) = here.topics
        try:
            return len(here.arrived(topic)) >= number
        except KeyError:
            return False

    return look


def test_an_import_after_a_clean_stop_continues_at_the_next_record(here, unique_topic, names):
    create_topic(here.source.bootstrap_servers, unique_topic, partitions=PARTITIONS)
    group = names("billing")
    write(here, 0, 300)
    with mm2(here) as judge:
        judge.until(has_copied(here, 300), "MirrorMaker 2 copies everything")
        judge.stop()
    write(here, 300, 100)
    commit_group(
        here.source.bootstrap_servers, group, {(unique_topic, 0): 40, (unique_topic, 1): 160}
    )

    (flow,) = here.answer("import-mm2")["flows"]
    here.mirror()

    assert flow["errors"] == []
    assert [p["next_offset"] for p in flow["partitions"]] == [150, 150]
    assert [p["paired"] for p in flow["partitions"]] == [150, 150]
    arrived = here.arrived(unique_topic)
    assert sorted(int(message.value()) for message in arrived) == list(range(400))
    assert verify(here.context).is_same
    # Groups before and after MirrorMaker 2's position resume exactly.
    assert here.cli("groups", "snapshot").returncode == 0
    answer = here.answer("translate", "--flow", FLOW, "--group", group)
    places = {p["partition"]: p["downstream_offset"] for p in answer["partitions"]}
    for partition, unread in ((0, 40), (1, 160)):
        left = [
            m.value()
            for m in arrived
            if m.partition() == partition and m.offset() >= places[partition]
        ]
        assert left == [b"%d" % i for i in range(unread * 2 + partition, 400, 2)]


def test_an_import_does_not_copy_again_what_a_killed_mirrormaker_2_copied_without_a_commit(
    here, unique_topic, names
):
    create_topic(here.source.bootstrap_servers, unique_topic, partitions=PARTITIONS)
    with mm2(here, **{"eu-west.offset.flush.interval.ms": "3600000"}) as judge:
        write(here, 0, 100)
        write(here, 100, 10, transactional_id=names("app"), commit=False)
        write(here, 100, 200)
        # It reads with read_uncommitted, Java's default, so aborted records are copied too.
        judge.until(has_copied(here, 310), "MirrorMaker 2 copies everything")
        running_brokers = here.answer("import-mm2")
        judge.kill()
    write(here, 300, 50)

    until(lambda: "flows" in here.answer("import-mm2", "--dry-run"), "its group is at rest")
    first = here.answer("import-mm2")["flows"][0]
    second = here.cli("import-mm2", "--format", "json")
    here.mirror()

    assert running_brokers["error"]["type"] == "MirrorMakerRunningError"
    assert first["errors"] == []
    assert {p["doubtful_until"] for p in first["partitions"]} == {None}
    assert sum(p["paired"] for p in first["partitions"]) == 300
    assert sum(p["others"] for p in first["partitions"]) == 10
    assert second.returncode == 1
    errors = json.loads(second.stdout)["flows"][0]["errors"]
    assert {e["type"] for e in errors} == {"AlreadyMirroredError"}
    values = sorted(int(message.value()) for message in here.arrived(unique_topic))
    assert values == sorted([*range(350), *range(100, 110)])
    found = verify(here.context)
    assert found.is_same, found.to_json()
    assert found.totals["foreign"] == 10


def test_records_that_mirrormaker_2_never_copied_are_reported_and_not_copied(here, unique_topic):
    create_topic(here.source.bootstrap_servers, unique_topic, partitions=PARTITIONS)
    write(here, 0, 60)
    with mm2(here, **{"us-east.consumer.auto.offset.reset": "latest"}) as judge:
        judge.until(lambda: copies_what_is_new(here), "MirrorMaker 2 begins")
        judge.stop()
    copied = [int(m.value()) for m in here.arrived(unique_topic)]
    (flow,) = here.answer("import-mm2")["flows"]
    here.mirror()

    assert flow["errors"] == []
    assert [p["missing"] >= 30 for p in flow["partitions"]] == [True, True]
    assert [p["complete_from"] for p in flow["partitions"]] == [
        p["missing"] for p in flow["partitions"]
    ]
    assert [int(m.value()) for m in here.arrived(unique_topic)] == copied
    found = verify(here.context)
    assert found.is_same, found.to_json()


def test_mirrormaker_2_continues_where_deltamirror_stopped_and_the_other_way_round(
    here, unique_topic
):
    create_topic(here.source.bootstrap_servers, unique_topic, partitions=PARTITIONS)
    write(here, 0, 100)
    here.mirror()
    write(here, 100, 50)

    (flow,) = here.answer("export-mm2")["flows"]
    with mm2(here) as other:
        other.until(has_copied(here, 150), "MirrorMaker 2 continues")
        write(here, 150, 2)
        other.until(has_copied(here, 152), "it copies what is new")
        other.stop()
    with pytest.raises(NotCaughtUpError, match="paused"):
        here.mirror()
    write(here, 152, 10)
    (back,) = here.answer("import-mm2")["flows"]
    here.mirror()

    assert flow["errors"] == back["errors"] == []
    assert [p["next_offset"] for p in flow["partitions"]] == [50, 50]
    assert [p["next_offset"] for p in back["partitions"]] == [76, 76]
    assert sorted(int(m.value()) for m in here.arrived(unique_topic)) == list(range(162))
    assert verify(here.context).is_same


def test_a_re_created_source_topic_with_fewer_partitions_is_reported_and_not_imported(
    here, unique_topic
):
    create_topic(here.source.bootstrap_servers, unique_topic, partitions=PARTITIONS)
    write(here, 0, 20)
    with mm2(here) as judge:
        judge.until(has_copied(here, 20), "MirrorMaker 2 copies everything")
        judge.stop()
    source = here.context.cluster("us-east")
    delete_topic(here.source.bootstrap_servers, unique_topic)
    until(lambda: not source.topics([unique_topic]), "it is gone")
    create_topic(here.source.bootstrap_servers, unique_topic)

    (flow,) = here.answer("import-mm2")["flows"]

    assert flow["partitions"] == []
    assert [error["type"] for error in flow["errors"]] == ["CopiedAheadError"] * PARTITIONS


def copies_what_is_new(here):
    """Write one more record to each partition; return whether any of them has arrived."""
    write(here, 1_000, PARTITIONS)
    try:
        return {m.partition() for m in here.arrived(*here.topics)} == {0, 1}
    except KeyError:
        return False
