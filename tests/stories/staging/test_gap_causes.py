"""The view `gaps` has every interval of offsets without a record, with its cause.

Staging ticks run in this process. The view is compared with the records that an independent
consumer reads from the source.
"""

import time

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from deltamirror.control import ACCEPT_GAP, ControlTable
from resources.delta.views import query_view
from resources.spark.session import spark_session
from schemas.errors.source import RecordsExpiredError
from schemas.kafka.partition import TopicPartition
from schemas.views import GAPS
from tests.support.brokers import Record, consume_all, create_topic, high_watermarks, produce
from tests.support.unclean_leader import watermarks
from tests.support.world import World, until

pytestmark = pytest.mark.kafka

UNCOMPACTED = "transaction markers or aborted"
COMPACTED = "compacted, transaction markers or aborted"


def records(*values):
    return [Record(b"k", value) for value in values]


def gaps(here, topic):
    """Return (start, end, cause) of each gap in the view."""
    return [
        (row["start_offset"], row["end_offset"], row["cause"])
        for row in query_view(GAPS, here.context.lake, "us-east", topic).to_pylist()
    ]


def missing(here, topic):
    """Return the offsets without a record on the source, found by an independent consumer."""
    bootstrap = here.source.bootstrap_servers
    (end,) = high_watermarks(bootstrap, topic).values()
    shown = {message.offset() for message in consume_all(bootstrap, topic)}
    return [offset for offset in range(end) if offset not in shown]


def offsets(found):
    return [offset for start, end, _ in found for offset in range(start, end)]


def test_markers_and_aborted_records_are_gaps_in_a_topic_without_compaction(
    world, source, unique_topic, names
):
    create_topic(source.bootstrap_servers, unique_topic)
    for n in range(4):
        written = records(b"%d" % n, b"more")
        is_kept = n % 2 == 0
        transaction = {"transactional_id": names("app"), "commit": is_kept}
        produce(source.bootstrap_servers, unique_topic, written, **transaction)
        produce(source.bootstrap_servers, unique_topic, records(b"plain"))
    here = world(unique_topic)

    with here.staging() as staging:
        staging.tick()

    found = gaps(here, unique_topic)
    assert found == [(start, end, UNCOMPACTED) for start, end, _ in found]
    assert offsets(found) == missing(here, unique_topic) == [2, 4, 5, 6, 10, 12, 13, 14]


def compacted(make_broker, topic):
    """Return a broker whose *topic* was compacted and has a later record."""
    broker = make_broker("compacting", properties={"log.cleaner.backoff.ms": "100"})
    settings = {"segment_ms": 100, "min_cleanable_dirty_ratio": 0.001}
    create_topic(broker.bootstrap_servers, topic, cleanup_policy="compact", **settings)
    written = 0

    def is_compacted():
        nonlocal written
        # The first record after segment.ms closes the segment.
        produce(broker.bootstrap_servers, topic, records(b"%d" % written, b"x", b"y"))
        written += 3
        time.sleep(0.2)
        return len(consume_all(broker.bootstrap_servers, topic)) < written

    until(is_compacted, "the broker compacts")
    produce(broker.bootstrap_servers, topic, [Record(b"other", b"last")])
    return broker


@pytest.mark.story
def test_compacted_records_are_gaps_in_a_compacted_topic_and_the_other_records_arrive(
    tmp_path, make_broker, target, unique_topic
):
    here = World(tmp_path, compacted(make_broker, unique_topic), target, [unique_topic])

    here.mirror()

    found = gaps(here, unique_topic)
    kept = [m.value() for m in consume_all(here.source.bootstrap_servers, unique_topic)]
    staged = here.context.lake.records("us-east").rows(["offset", "value"]).sort_by("offset")
    assert {cause for *_, cause in found} == {COMPACTED}
    assert offsets(found) == [
        offset
        for offset in range(high_watermarks(here.source.bootstrap_servers, unique_topic)[0])
        if offset not in staged["offset"].to_pylist()
    ]
    # Records that are compacted later stay staged.
    assert set(kept) <= set(staged["value"].to_pylist())
    assert [m.value() for m in here.arrived(unique_topic)] == staged["value"].to_pylist()


@pytest.mark.story
def test_records_expired_before_staging_stop_the_partition_until_the_gap_is_accepted(
    tmp_path, make_broker, target, unique_topic, names
):
    quickly = {"log.retention.check.interval.ms": "200", "log.segment.delete.delay.ms": "0"}
    broker = make_broker("forgetful", properties=quickly)
    other, partition = names("other"), TopicPartition(unique_topic, 0)
    for topic in (unique_topic, other):
        create_topic(broker.bootstrap_servers, topic)
    here = World(tmp_path, broker, target, [unique_topic, other])
    produce(broker.bootstrap_servers, unique_topic, records(b"0", b"1"))
    with here.staging() as staging:
        staging.tick()
        produce(broker.bootstrap_servers, unique_topic, records(b"2", b"3", b"4"))
        _retain(broker, unique_topic, "1")
        until(lambda: watermarks(broker, partition).low == 5, "retention deletes all records")
        _retain(broker, unique_topic, "-1")
        produce(broker.bootstrap_servers, unique_topic, records(b"5"))
        produce(broker.bootstrap_servers, other, records(b"well"))

        staging.tick()

        assert isinstance(staging.partition_errors[partition], RecordsExpiredError)
        assert "[2, 5) expired" in str(staging.partition_errors[partition])
        assert staging.frontier(TopicPartition(other, 0)) == 1

        ControlTable(here.context.lake.control).add_request(ACCEPT_GAP, "us-east", unique_topic)
        staging.tick()
    here.mirror()
    assert gaps(here, unique_topic) == [(2, 5, "expired, accepted")]
    assert [m.value() for m in here.arrived(unique_topic)] == [b"0", b"1", b"5"]


def _retain(broker, topic, ms):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    entry = ConfigEntry("retention.ms", ms, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    [future.result(30) for future in admin.incremental_alter_configs([resource]).values()]

    def applied():
        (future,) = admin.describe_configs([ConfigResource("topic", topic)]).values()
        return future.result(30)["retention.ms"].value == ms

    until(applied, "the broker has applied the retention")


def test_a_log_that_starts_above_offset_0_when_staging_begins_has_a_gap_from_0(
    world, source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, records(b"0", b"1", b"2"))
    admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    deleted = admin.delete_records([KafkaPartition(unique_topic, 0, 2)])
    [future.result(30) for future in deleted.values()]
    here = world(unique_topic)

    with here.staging() as staging:
        staging.tick()

    assert gaps(here, unique_topic) == [(0, 2, "gone before staging began")]


def test_offsets_skipped_by_auto_offset_reset_latest_are_a_gap(world, source, unique_topic):
    create_topic(source.bootstrap_servers, unique_topic)
    produce(source.bootstrap_servers, unique_topic, records(b"0", b"1"))
    here = world(unique_topic, **{"us-east.consumer.auto.offset.reset": "latest"})
    with here.staging() as staging:
        staging.tick()
        produce(source.bootstrap_servers, unique_topic, records(b"2"))

        staging.tick()

        assert staging.frontier(TopicPartition(unique_topic, 0)) == 3
    assert gaps(here, unique_topic) == [(0, 2, "older than auto.offset.reset=latest")]


@pytest.mark.story
def test_spark_sql_and_the_gaps_command_return_the_same_rows_for_the_documented_view(
    world, source, unique_topic, names
):
    create_topic(source.bootstrap_servers, unique_topic)
    written = records(b"kept"), records(b"aborted")
    for each, is_kept in zip(written, (True, False), strict=True):
        transaction = {"transactional_id": names("app"), "commit": is_kept}
        produce(source.bootstrap_servers, unique_topic, each, **transaction)
    here = world(unique_topic)
    with here.staging() as staging:
        staging.tick()
    spark = spark_session().newSession()
    cluster = here.context.lake.root.absolute() / "clusters" / "us-east"
    for table in ("records", "segments"):
        spark.sql(f"CREATE TEMPORARY VIEW {table} AS SELECT * FROM delta.`{cluster / table}`")

    spark.sql(f"CREATE TEMPORARY VIEW gaps AS {GAPS.sql}")
    answered = spark.sql("SELECT * FROM gaps ORDER BY start_offset").collect()

    printed = here.answer("gaps", "--topic", unique_topic)["gaps"]
    assert [{"cluster": "us-east", **row.asDict()} for row in answered] == printed
    assert [(row["start_offset"], row["end_offset"]) for row in printed] == [(1, 4)]
