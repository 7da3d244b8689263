"""Changes of remote topics and progress by other tools: reported, without loss or duplicates."""

from __future__ import annotations

import logging
from functools import partial

import pytest
from confluent_kafka import Producer

from deltamirror.timings import Timings
from schemas.kafka.partition import TopicPartition
from tests.support.brokers import (
    Record,
    commit_group,
    consume_all,
    create_topic,
    high_watermarks,
    produce,
)
from tests.support.cli import answer, run
from tests.support.fake_cluster import neighbours
from tests.support.target_faults import (
    GROUP,
    WAIT_S,
    arrived,
    assert_exact,
    assert_stops,
    delete_map,
    delete_map_and_progress,
    delete_progress,
    delete_records,
    delete_topic,
    pairs,
    partition_errors,
    progress,
    recreate_topic,
    resume,
    running,
    set_config,
    write,
    write_foreign,
)
from tests.support.world import FLOW, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]


@pytest.fixture
def here(world, source, unique_topic):
    """A world of one topic, of which a, b and c are mirrored."""
    create_topic(source.bootstrap_servers, unique_topic)
    here = world(unique_topic)
    write(here, unique_topic, b"a", b"b", b"c")
    here.mirror()
    return here


@pytest.fixture
def remote(here, unique_topic):
    return here.remote(unique_topic)


# The topic


def test_a_recreated_remote_topic_waits_for_a_request_and_then_gets_every_record_once(
    here, remote, unique_topic
):
    recreate_topic(here, remote)
    write(here, unique_topic, b"d")

    assert_stops(here, "the target topic was re-created")
    assert arrived(here, unique_topic) == []

    resume(here, unique_topic)
    here.mirror()
    assert arrived(here, unique_topic) == [b"a", b"b", b"c", b"d"]


def test_a_deleted_remote_topic_is_recreated_but_not_filled_from_the_middle(
    here, remote, unique_topic
):
    delete_topic(here, remote)
    write(here, unique_topic, b"d")

    assert_stops(here, "the target topic was re-created")
    assert arrived(here, unique_topic) == []

    resume(here, unique_topic)
    here.mirror()
    assert arrived(here, unique_topic) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("meanwhile", [(), (b"x",) * 9], ids=["empty", "longer than before"])
def test_a_remote_topic_recreated_while_running_is_reported_before_a_record_is_visible(
    here, remote, unique_topic, monkeypatch, meanwhile
):
    monkeypatch.setattr("deltamirror.context.Timings", partial(Timings, topics_max_age_s=3600.0))
    with running(here):
        write(here, unique_topic, b"d")
        until(lambda: arrived(here, unique_topic)[-1:] == [b"d"], "the loop replays")
        recreate_topic(here, remote)
        write_foreign(here, remote, *meanwhile)
        write(here, unique_topic, b"e")
        until(lambda: "re-created" in "".join(partition_errors(here)), "status reports it")

    assert arrived(here, unique_topic) == list(meanwhile)
    assert_stops(here, "the target topic was re-created")
    resume(here, unique_topic)
    here.mirror()
    assert arrived(here, unique_topic) == [*meanwhile, b"a", b"b", b"c", b"d", b"e"]


def test_records_deleted_on_the_target_do_not_come_back_and_the_rest_arrives_once(
    here, remote, unique_topic
):
    delete_records(here, remote, 2)
    write(here, unique_topic, b"d")

    here.mirror()

    assert arrived(here, unique_topic) == [b"c", b"d"]
    assert [up for up, _ in pairs(here, unique_topic)] == [0, 1, 2, 3]
    compared = answer("verify", "--config", str(here.path))
    assert (
        compared["lost"],
        compared["duplicated"],
        compared["flows"][0]["expired_downstream"],
    ) == (0, 0, 2)


# Progress


def test_deleted_progress_is_restored_from_the_offset_map_and_reported(
    here, remote, unique_topic, caplog
):
    delete_progress(here)
    write(here, unique_topic, b"d")

    here.mirror()

    assert arrived(here, unique_topic) == [b"a", b"b", b"c", b"d"]
    assert progress(here, remote) == 4
    assert f"has no progress of {remote}" in caplog.text


@pytest.mark.parametrize("offset", [1, 99], ids=["back", "forward"])
def test_progress_that_another_tool_has_set_is_ignored_and_corrected(
    here, remote, unique_topic, caplog, offset
):
    commit_group(here.target.bootstrap_servers, GROUP, {(remote, 0): offset})
    write(here, unique_topic, b"d")

    here.mirror()

    assert arrived(here, unique_topic) == [b"a", b"b", b"c", b"d"]
    assert progress(here, remote) == 4
    assert f"has no progress of {remote}" in caplog.text


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        pytest.param(1, "progress on the target is 1, the offset map ends at 3", id="back"),
        pytest.param(4, "only 0 are on the target", id="forward, within what is staged"),
        pytest.param(
            99, "is 99, but what is staged ends at 5; the offset map ends at 3", id="far forward"
        ),
    ],
)
def test_altered_progress_with_our_metadata_stops_the_partition_until_it_is_reset(
    here, remote, unique_topic, offset, words
):
    context = here.context
    target = context.cluster("eu-west")
    ((partition, (was, metadata)),) = target.committed_offsets(
        GROUP, [TopicPartition(remote, 0)], require_stable=False
    ).items()
    run("pause", "--flow", FLOW, "--config", str(here.path))
    write(here, unique_topic, b"d", b"e")
    run("run", "--until-caught-up", "--config", str(here.path), code=1)
    target.commit_offsets(GROUP, {partition: (offset, metadata)})
    run("resume", "--flow", FLOW, "--config", str(here.path))

    assert_stops(here, words)
    assert arrived(here, unique_topic) == [b"a", b"b", b"c"]

    target.commit_offsets(GROUP, {partition: (was, metadata)})
    here.mirror()
    assert arrived(here, unique_topic) == [b"a", b"b", b"c", b"d", b"e"]


# Progress and map


def test_lost_progress_and_offset_map_are_restored_from_the_target_log(
    here, remote, unique_topic, caplog
):
    caplog.set_level(logging.INFO)
    known = pairs(here, unique_topic)
    delete_map(here)
    delete_progress(here)
    write(here, unique_topic, b"d")

    here.mirror()

    assert arrived(here, unique_topic) == [b"a", b"b", b"c", b"d"]
    assert pairs(here, unique_topic)[:3] == known
    assert progress(here, remote) == 4
    assert "there was no offset map" in caplog.text


def test_progress_is_restored_from_the_rest_of_a_target_log_without_its_head(
    here, remote, unique_topic
):
    delete_map(here)
    delete_progress(here)
    delete_records(here, remote, 2)
    write(here, unique_topic, b"d")

    here.mirror()

    assert arrived(here, unique_topic) == [b"c", b"d"]
    assert [up for up, _ in pairs(here, unique_topic)] == [2, 3]


def test_unknown_progress_waits_for_a_request(here, remote, unique_topic):
    delete_map(here)
    delete_progress(here)
    delete_records(here, remote, high_watermarks(here.target.bootstrap_servers, remote)[0])
    write(here, unique_topic, b"d")

    assert_stops(here, "no progress and no offset map")
    assert arrived(here, unique_topic) == []

    resume(here, unique_topic)
    here.mirror()
    assert arrived(here, unique_topic) == [b"a", b"b", b"c", b"d"]


# Other producers


def test_records_of_other_producers_on_the_target_do_not_change_which_records_arrive(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic)
    here = world(unique_topic)
    remote = here.remote(unique_topic)
    create_topic(here.target.bootstrap_servers, remote)
    write_foreign(here, remote, b"x")
    write(here, unique_topic, b"a", b"b")
    here.mirror()
    write_foreign(here, remote, b"b", b"y")
    write_foreign(here, remote, b"z", transactional_id=f"{remote}-other")
    write_foreign(here, remote, b"never", transactional_id=f"{remote}-other", commit=False)
    write(here, unique_topic, b"c", b"d")
    here.mirror()

    assert arrived(here, unique_topic) == [b"x", b"a", b"b", b"b", b"y", b"z", b"c", b"d"]
    assert_exact(here, unique_topic, b"a", b"b", b"c", b"d")


@pytest.mark.parametrize("gone", [delete_map, delete_map_and_progress])
def test_a_lost_offset_map_is_not_guessed_next_to_identical_records_of_another_producer(
    here, remote, unique_topic, gone
):
    write_foreign(here, remote, b"c")
    gone(here)
    write(here, unique_topic, b"d")

    assert_stops(here, "fits, but so does another one")

    assert arrived(here, unique_topic) == [b"a", b"b", b"c", b"c"]


def test_an_open_transaction_of_another_producer_stops_a_map_rebuild_but_not_replay(
    here, remote, unique_topic
):
    open_one = Producer(
        {
            "bootstrap.servers": here.target.bootstrap_servers,
            "transactional.id": f"{remote}-open",
            "transaction.timeout.ms": 600_000,
        }
    )
    open_one.init_transactions(WAIT_S)
    open_one.begin_transaction()
    open_one.produce(remote, b"foreign", partition=0)
    assert open_one.flush(WAIT_S) == 0
    write(here, unique_topic, b"d")

    here.mirror()

    hidden = consume_all(here.target.bootstrap_servers, remote, "read_uncommitted")
    aborted = b""  # replay cannot know that the open transaction is not its own
    assert [m.value() for m in hidden] == [b"a", b"b", b"c", b"foreign", aborted, b"d"]
    assert progress(here, remote) == 4
    known = pairs(here, unique_topic)
    delete_map(here)
    assert_stops(here, "another producer's transaction is open there since offset 4")
    assert pairs(here, unique_topic) == []

    open_one.commit_transaction(WAIT_S)
    here.mirror()
    assert pairs(here, unique_topic) == known
    assert arrived(here, unique_topic) == [b"a", b"b", b"c", b"foreign", b"d"]


# Records that the target refuses


HOUR_MS = "3600000"
AGES = str(2**63 - 1)
REFUSALS = [
    pytest.param(
        {"message_timestamp_before_max_ms": HOUR_MS},
        Record(b"k", b"bad", timestamp=1_000_000),
        {"message_timestamp_before_max_ms": AGES},
        id="too old",
    ),
    pytest.param(
        {"message_timestamp_after_max_ms": HOUR_MS},
        Record(b"k", b"bad", timestamp=9_300_000_000_000),
        {"message_timestamp_after_max_ms": AGES},
        id="too far ahead",
    ),
    pytest.param(
        {"cleanup_policy": "compact"},
        Record(None, b"bad"),
        {"cleanup_policy": "delete"},
        id="no key, compacted",
    ),
]


@pytest.mark.parametrize(("limits", "record", "lifted"), REFUSALS)
def test_a_record_that_the_target_refuses_stops_only_its_partition_until_the_limit_is_raised(
    world, source, names, limits, record, lifted
):
    refused = names("refused")
    healthy = neighbours(refused, 2)
    # Config sync would remove the limit at once, because the source has none.
    here = world(refused, *healthy, **{"sync.topic.configs.enabled": "false"})
    create_topic(source.bootstrap_servers, refused)
    create_topic(here.target.bootstrap_servers, here.remote(refused), **limits)
    produce(
        source.bootstrap_servers, refused, [Record(b"k", b"good"), record, Record(b"k", b"next")]
    )
    for topic in healthy:
        create_topic(source.bootstrap_servers, topic)
        produce(source.bootstrap_servers, topic, [Record(b"k", b"%d" % i) for i in range(5)])

    assert_stops(here, r"the target refused a record in \[0, 3\)")

    for topic in healthy:
        assert arrived(here, topic) == [b"%d" % i for i in range(5)]
    assert arrived(here, refused) == []
    set_config(here, here.remote(refused), **lifted)
    run("resume", "--flow", FLOW, "--config", str(here.path))
    here.mirror()
    assert arrived(here, refused) == [b"good", b"bad", b"next"]
