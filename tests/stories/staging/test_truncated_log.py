"""A truncated source log, as after an unclean leader election, stops staging with an error."""

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from deltamirror.control import ACCEPT_GAP, ControlTable
from schemas.errors.source import LogTruncatedError, RecordsExpiredError
from schemas.kafka.partition import TopicPartition
from tests.support.brokers import Record, create_topic, high_watermarks, produce
from tests.support.unclean_leader import PartitionBackup, elect_again, watermarks
from tests.support.world import World, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]


def values(first, end):
    return [b"%d" % n for n in range(first, end)]


class Truncated:
    """A log of ten staged records, replaced by an older copy with four; and a healthy topic."""

    def __init__(self, tmp_path, broker, target, names):
        self.broker, self.topic, self.other = broker, names("cut"), names("whole")
        self.partition = TopicPartition(self.topic, 0)
        for topic in (self.topic, self.other):
            create_topic(broker.bootstrap_servers, topic)
        self.here = World(tmp_path, broker, target, [self.topic, self.other])
        self.write(values(0, 4))
        older = PartitionBackup(broker, self.partition, tmp_path / "older")
        self.write(values(4, 10))
        with self.here.staging() as staging:
            staging.tick()
        older.restore()

    def write(self, written, topic=None):
        records = [Record(None, value) for value in written]
        produce(self.broker.bootstrap_servers, topic or self.topic, records)

    def arrived(self):
        return [m.value() for m in self.here.arrived(self.topic)]

    def staged(self):
        rows = self.here.context.lake.records("us-east").rows(
            ["topic", "topic_id", "offset", "value"]
        )
        return sorted(
            ("+" in row["topic_id"], row["offset"], row["value"])
            for row in rows.to_pylist()
            if row["topic"] == self.topic
        )


@pytest.fixture
def truncated(tmp_path, make_broker, target, names):
    return Truncated(tmp_path, make_broker("unclean"), target, names)


def truncation_error(staging, truncated):
    """Tick until the restarted broker answers; return the partition's error."""
    for _ in range(5):
        staging.tick()
        if isinstance(staging.partition_errors.get(truncated.partition), LogTruncatedError):
            break
    return staging.partition_errors.get(truncated.partition)


def test_a_log_truncated_below_the_frontier_is_reported_with_the_missing_records(truncated):
    with truncated.here.staging() as staging:
        error = truncation_error(staging, truncated)

    assert isinstance(error, LogTruncatedError)
    assert "staged up to 10" in str(error)
    assert "records [4, 10) are gone" in str(error)


def test_a_truncated_log_that_has_grown_past_the_frontier_is_detected_by_its_leader_epoch(
    truncated,
):
    truncated.write(values(100, 120))
    assert high_watermarks(truncated.broker.bootstrap_servers, truncated.topic) == {0: 24}
    truncated.write([b"well"], truncated.other)
    with truncated.here.staging() as staging:
        error = truncation_error(staging, truncated)

        assert isinstance(error, LogTruncatedError)
        assert "staged up to 10" in str(error)
        assert "records [4, 10) are gone, it ends at 24" in str(error)
        assert [value for *_, value in truncated.staged()] == values(0, 10)
        assert staging.frontier(TopicPartition(truncated.other, 0)) == 1

        ControlTable(truncated.here.context.lake.control).add_request(
            ACCEPT_GAP, "us-east", truncated.topic
        )
        staging.tick()
    truncated.here.mirror()
    now = values(0, 4) + values(100, 120)
    former = [(False, n, value) for n, value in enumerate(values(0, 10))]
    assert truncated.staged() == former + [(True, n, value) for n, value in enumerate(now)]
    assert truncated.arrived() == values(0, 10) + now


def test_an_election_without_truncation_is_not_reported_even_after_an_accepted_gap(
    tmp_path, make_broker, unique_topic
):
    broker, partition = make_broker("elected"), TopicPartition(unique_topic, 0)
    create_topic(broker.bootstrap_servers, unique_topic)
    here = World(tmp_path, broker, broker, [unique_topic])  # nothing is replayed

    def write(*values):
        produce(broker.bootstrap_servers, unique_topic, [Record(None, value) for value in values])

    write(b"0", b"1")
    with here.staging() as staging:
        staging.tick()
        epoch = watermarks(broker, partition).leader_epoch
        broker.kill()
        broker.start()
        elect_again(broker, partition, epoch)
        write(b"2", b"3", b"4", b"5")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        deleted = admin.delete_records([KafkaPartition(unique_topic, 0, 4)])
        [future.result(30) for future in deleted.values()]
        until(lambda: _expired(staging, partition), "the gap is reported")

        ControlTable(here.context.lake.control).add_request(ACCEPT_GAP, "us-east", unique_topic)
        until(lambda: (staging.tick(), staging.frontier(partition) == 6)[1], "staging continues")

        assert staging.partition_errors == {}
    rows = here.context.lake.records("us-east").rows(["offset", "value"]).sort_by("offset")
    assert rows["value"].to_pylist() == [b"0", b"1", b"4", b"5"]


def _expired(staging, partition):
    staging.tick()
    return isinstance(staging.partition_errors.get(partition), RecordsExpiredError)
