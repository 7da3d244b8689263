"""What a story plants into a stage, behind the back of all that would keep it right."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from deltamirror.context import Site
from pipeline.record_digest import Digest
from resources.delta.arrow_schema import file_schema
from resources.delta.records_table import Records, RecordsFile
from resources.delta.stage_reader import StagedLog
from resources.delta.stage_writer import RecordsFolder
from resources.kafka.range_reader import RangeReader
from schemas.kafka.partition import SourcePartition, TopicPartition, Watermarks, slot_of
from schemas.staging.read_range import OffsetRange
from schemas.staging.segment import Segment, StagedFile
from schemas.tables import RECORDS

Change = Callable[[pa.Table], pa.Table]


def files_of(site: Site, topic: str) -> tuple[Records, list[RecordsFile]]:
    """Return the staged files of *topic*: nobody else's records are in its slot."""
    records = site.lake.records("us-east")
    records.refresh()
    return records, [f for f in records.files() if f.slot == slot_of(topic, 0)]


def rewrite(site: Site, topic: str, change: Change) -> None:
    """Put what *change* makes of its rows in place of every staged file of *topic*."""
    records, files = files_of(site, topic)
    for file in files:
        records.replace([file], [_written(records, change(_rows(records, file)), file)])


def double(site: Site, topic: str) -> None:
    """Commit the rows of the one staged file of *topic* once more."""
    records, (file,) = files_of(site, topic)
    records.stage([_written(records, _rows(records, file), file)], [], {})


def stage_by_hand(site: Site, topic: str, change: Change) -> None:
    """Stage what the source holds past the frontier as *change* makes it, with fitting evidence.

    The next run puts that evidence into `segments`, as after a crash. So the ledger and the stage
    agree, and only the source knows better.
    """
    records = site.lake.records("us-east")
    records.refresh()
    topic_id = site.cluster("us-east").topics([topic])[topic].topic_id
    source = SourcePartition(topic, topic_id, 0)
    start = records.frontier(source) or 0
    marks = site.cluster("us-east").watermarks([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    assert isinstance(marks, Watermarks)
    rows = change(_read(site, OffsetRange(source, start, marks.stable, None, None, marks)))
    digest = Digest()
    size = sum(digest.add(batch) for batch in rows.to_batches())
    sequence = records.version + 1
    made = []
    if rows.num_rows:
        file = RecordsFile("", slot_of(topic, 0), sequence, 0, rows.num_rows)
        made.append(_written(records, rows, file))
    segment = Segment(
        topic, topic_id, 0, start, marks.stable, rows.num_rows, size, None, None, None, None,
        None, 0, marks.stable, marks.high, "", digest.hexdigest(), 1, sequence,
    )  # fmt: skip
    records.stage(made, [segment], {source: start})


def altered(number: int) -> Change:
    """Return a change of the value of row *number*."""

    def change(rows: pa.Table) -> pa.Table:
        values = rows["value"].to_pylist()
        values[number] = b"changed"
        return _with(rows, "value", pa.array(values, pa.binary()))

    return change


def swapped(rows: pa.Table) -> pa.Table:
    """Return *rows* with the contents of the second and third exchanged, not their offsets."""
    other = rows.take(pa.array([0, 2, 1, *range(3, rows.num_rows)]))
    return _with(other, "offset", rows["offset"])


def without(*numbers: int) -> Change:
    """Return a change that leaves rows *numbers* out."""
    return lambda rows: rows.take(
        pa.array([i for i in range(rows.num_rows) if i not in numbers], pa.int64())
    )


def _with(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), column)


def _read(site: Site, wanted: OffsetRange) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    reader = RangeReader(site.config.clusters["us-east"].consumer)
    reader.read([wanted], 2**62, lambda _, rows: batches.append(rows))
    reader.close()
    return pa.Table.from_batches(batches)


def _rows(records: Records, file: RecordsFile) -> pa.Table:
    batches = [rows for _, rows in StagedLog(records.path).all_rows([file.path])]
    return pa.Table.from_batches(batches).cast(file_schema(RECORDS))


def _written(records: Records, rows: pa.Table, like: RecordsFile) -> StagedFile:
    with RecordsFolder(records.path).slot_file(like.slot, like.sequence) as file:
        for batch in rows.to_batches():
            file.write(batch)
        made = file.close()
    assert made is not None
    return made
