"""A mirrored world is the same on all sides; what is then planted anywhere is found, all of it."""

import json
from collections import defaultdict
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets.orders import PAUSE, Orders
from assets.verification import verify
from resources.data_file import file_name
from resources.table import LakeTable
from schemas.errors import NotCaughtUpError, TopicMissingError
from schemas.progress import Progress
from schemas.staged_file import StagedFile
from schemas.tables import VERIFICATION
from schemas.topic_partition import TopicPartition, slot_of
from schemas.verification import EXPLAINED, KINDS
from tests.brokers import Record, create_topic, produce
from tests.stories.world import FLOW

pytestmark = [pytest.mark.kafka, pytest.mark.story]

NONE = dict.fromkeys((*KINDS, *EXPLAINED), 0)
WORDS = ("copied", "deleted", "changed", "swapped", "doubled", "never-sent", "shortened")
SIZE = 40


@pytest.fixture
def topics(source, names):
    """A topic for each word, in a slot of its own: a file of the stage holds one topic."""
    found, taken = {}, set()
    for word in WORDS:
        name = next(n for i in count() if slot_of(n := names(f"{word}{i}"), 0) not in taken)
        taken.add(slot_of(name, 0))
        found[word] = name
        _fill(source.bootstrap_servers, name, names("app"))
    return found


def _fill(bootstrap, topic, transaction):
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


def _by_topic(found):
    sums = defaultdict(dict)
    for each in found.partitions:
        sums[each.partition.topic] = each.counts
    return sums


def _files(site, topic):
    """Return the staged files of *topic*: nobody else's records are in them."""
    records = site.lake.records("us-east")
    return records, [f for f in records.files() if f.slot == slot_of(topic, 0)]


def _rewrite(site, topic, change):
    """Give a staged file of *topic* what *change* makes of its rows, behind the table's back."""
    records, (file,) = _files(site, topic)
    with pq.ParquetFile(records.path / file.path) as parquet:
        rows = parquet.read()
    pq.write_table(change(rows), records.path / file.path, write_page_checksum=True)


def _swap(rows):
    """Return *rows* with the contents of the second and third exchanged, not their offsets."""
    order = pa.array([0, 2, 1, *range(3, rows.num_rows)])
    other = rows.take(order)
    return other.set_column(other.schema.get_field_index("offset"), "offset", rows["offset"])


def _change(rows):
    values = rows["value"].to_pylist()
    values[4] = b"changed"
    at = rows.schema.get_field_index("value")
    return rows.set_column(at, rows.schema.field(at), pa.array(values, pa.binary()))


def _double(site, topic):
    """Commit a copy of a staged file of *topic* beside it."""
    records, (file,) = _files(site, topic)
    copy = file_name(file.sequence + 1_000, "copy")
    folder = (records.path / file.path).parent
    (folder / copy).write_bytes((records.path / file.path).read_bytes())
    path = str((folder / copy).relative_to(records.path))
    size = (folder / copy).stat().st_size
    stats = json.dumps({"numRecords": file.records})
    records.stage([StagedFile(path, size, file.slot, stats, 0)], [], {})


def _stage_without_sending(here, site, topic, more):
    """Stage *more* records of *topic*, and say in the target's progress that they were sent."""
    remote = TopicPartition(here.remote(topic), 0)
    group = site.config.flow(FLOW).flow.progress_group
    offset, metadata = site.cluster("eu-west").committed(group, [remote])[remote]
    Orders(site.lake.control).give(PAUSE, FLOW, topic)
    produce(here.source.bootstrap_servers, topic, more)
    with pytest.raises(NotCaughtUpError):
        here.mirror()
    progress = Progress.read(offset, metadata)
    end = offset + len(more)
    site.cluster("eu-west").commit_offsets(group, {remote: (end, progress.metadata)})


def test_what_is_planted_on_any_side_is_found_and_nothing_else(world, topics):
    here = world(*topics.values())
    here.mirror()
    site = here.site

    clean = verify(site)

    assert clean.is_same, clean.to_json()
    assert clean.totals == {"records": SIZE * len(WORDS), **NONE}

    first = here.arrived(topics["copied"])[3]
    copy = Record(first.key(), first.value(), first.headers(), first.timestamp()[1])
    stranger = Record(b"k", b"not ours")
    produce(here.target.bootstrap_servers, here.remote(topics["copied"]), [copy, stranger])
    records, (file,) = _files(site, topics["deleted"])
    (records.path / file.path).unlink()
    _rewrite(site, topics["changed"], _change)
    _rewrite(site, topics["swapped"], _swap)
    _double(site, topics["doubled"])
    _rewrite(site, topics["shortened"], lambda rows: rows.slice(0, SIZE - 3))
    _stage_without_sending(here, site, topics["never-sent"], [Record(b"k", b"late")] * 2)

    counts = _by_topic(verify(site))

    assert counts[topics["copied"]] == NONE | {"duplicated": 1, "foreign": 1}
    assert counts[topics["deleted"]] == NONE | {"lost": SIZE}
    assert counts[topics["doubled"]] == NONE | {"duplicated": SIZE}
    assert counts[topics["shortened"]] == NONE | {"lost": 3}
    assert counts[topics["never-sent"]] == NONE | {"lost": 2}
    assert counts[topics["changed"]] == NONE | {"altered": 1}
    assert counts[topics["swapped"]] == NONE | {"altered": 2, "reordered": 2}
    only = verify(site, topics=[topics["changed"]], sides=["staged"])
    assert only.totals["altered"] == 1

    done = here.cli("verify", "--topic", topics["deleted"])
    assert done.returncode == 1
    assert f"verified 0 records: {SIZE} lost" in done.stdout
    answer = here.answer("verify", "--topic", topics["copied"])
    assert (answer["records"], answer["duplicated"], answer["lost"]) == (SIZE, 1, 0)
    assert answer["flows"][0]["flow"] == FLOW
    (difference,) = answer["differences"]
    assert (difference["topic"], difference["offset"]) == (topics["copied"], 3)
    rows = LakeTable(
        site.lake.of_flow(site.config.flow(FLOW).flow, VERIFICATION).path, VERIFICATION
    )
    assert rows.rows().num_rows == 2 * len(WORDS) + 3
    with pytest.raises(TopicMissingError):
        verify(site, topics=["no-such-topic"])


def test_a_cluster_that_is_down_is_an_error_of_its_side_and_the_other_is_compared(
    world, source, unique_topic, names
):
    _fill(source.bootstrap_servers, unique_topic, names("app"))
    here = world(unique_topic)
    here.mirror()
    here.source.stop()

    found = verify(here.site)

    assert [error["type"] for error in found.errors] == ["UnreachableError"]
    assert not found.is_same
    assert found.totals == {"records": SIZE, **NONE}
