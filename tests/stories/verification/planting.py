"""Plant differences into a stage, bypassing the checks that would prevent them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from deltamirror.context import MirrorContext
from pipeline.record_digest import Digest
from resources.delta.arrow_schema import ROW_SCHEMA
from resources.delta.records_table import RecordsTable
from resources.delta.stage_reader import StageReader
from resources.delta.stage_writer import RecordsDirectory
from resources.kafka.range_reader import RangeReader
from schemas.kafka.partition import (
    SLOT_COUNT,
    SourcePartition,
    TopicPartition,
    Watermarks,
    slot_of,
)
from schemas.staging.read_range import OffsetRange
from schemas.staging.segment import RecordsFile, Segment, StagedFile

TableChange = Callable[[pa.Table], pa.Table]


def files_of(context: MirrorContext, topic: str) -> tuple[RecordsTable, list[RecordsFile]]:
    """Return the staged files of *topic*, which is alone in its slot.

    A file that other slots share is replaced by a file for each slot.
    """
    records = context.lake.records("us-east")
    records.refresh()
    slot = slot_of(topic, 0)
    for file in (f for f in records.files() if f.has_slot(slot) and f.slots.bit_count() > 1):
        slots = [each for each in range(SLOT_COUNT) if file.has_slot(each)]
        apart = [_written(records, n, _rows(records, file, n), file.sequence) for n in slots]
        records.replace([file], apart)
    return records, [f for f in records.files() if f.has_slot(slot)]


def rewrite(context: MirrorContext, topic: str, change: TableChange) -> None:
    """Replace every staged file of *topic* with its rows after *change*."""
    records, files = files_of(context, topic)
    for file in files:
        rows = change(_rows(records, file))
        records.replace([file], [_written(records, slot_of(topic, 0), rows, file.sequence)])


def double(context: MirrorContext, topic: str) -> None:
    """Commit the rows of the only staged file of *topic* again."""
    records, (file,) = files_of(context, topic)
    records.stage(
        [_written(records, slot_of(topic, 0), _rows(records, file), file.sequence)], [], {}
    )


def stage_by_hand(context: MirrorContext, topic: str, change: TableChange) -> None:
    """Stage the source's records after the frontier with *change*, and with matching digests.

    The next run adds these digests to `segments`, as after a crash. So `segments` and the stage
    agree, and only the source differs.
    """
    records = context.lake.records("us-east")
    records.refresh()
    topic_id = context.cluster("us-east").topics([topic])[topic].topic_id
    source = SourcePartition(topic, topic_id, 0)
    start = records.frontier(source) or 0
    marks = context.cluster("us-east").watermarks([TopicPartition(topic, 0)])[
        TopicPartition(topic, 0)
    ]
    assert isinstance(marks, Watermarks)
    rows = change(_read(context, OffsetRange(source, start, marks.stable, None, None, marks)))
    digest = Digest()
    size = sum(digest.add(batch) for batch in rows.to_batches())
    sequence = records.version + 1
    made = []
    if rows.num_rows:
        made.append(_written(records, slot_of(topic, 0), rows, sequence))
    segment = Segment(
        topic, topic_id, 0, start, marks.stable, rows.num_rows, size, None, None, None, None,
        None, 0, marks.stable, marks.high, "", digest.hexdigest(), 1, sequence,
    )  # fmt: skip
    records.stage(made, [segment], {source: start})


def altered(number: int) -> TableChange:
    """Return a change that alters the value of row *number*."""

    def change(rows: pa.Table) -> pa.Table:
        values = rows["value"].to_pylist()
        values[number] = b"changed"
        return _with(rows, "value", pa.array(values, pa.binary()))

    return change


def swapped(rows: pa.Table) -> pa.Table:
    """Return *rows* with the contents of rows 2 and 3 swapped, but not their offsets."""
    other = rows.take(pa.array([0, 2, 1, *range(3, rows.num_rows)]))
    return _with(other, "offset", rows["offset"])


def without(*numbers: int) -> TableChange:
    """Return a change that removes the rows *numbers*."""
    return lambda rows: rows.take(
        pa.array([i for i in range(rows.num_rows) if i not in numbers], pa.int64())
    )


def _with(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), column)


def _read(context: MirrorContext, wanted: OffsetRange) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    reader = RangeReader(context.config.clusters["us-east"].consumer)
    reader.read([wanted], 2**62, lambda _, rows: batches.append(rows))
    reader.close()
    return pa.Table.from_batches(batches)


def _rows(records: RecordsTable, file: RecordsFile, slot: int | None = None) -> pa.Table:
    batches = [rows for _, rows in StageReader(records.path).all_rows([file.path], slot)]
    return pa.Table.from_batches(batches).cast(ROW_SCHEMA)


def _written(records: RecordsTable, slot: int, rows: pa.Table, sequence: int) -> StagedFile:
    with RecordsDirectory(records.path).records_file(sequence) as file:
        for batch in rows.to_batches():
            file.write(slot, batch)
        made = file.close()
    assert made is not None
    return made
