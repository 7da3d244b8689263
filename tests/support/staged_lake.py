"""Stage records in a lake like the loop, without a source."""

import pyarrow as pa

from pipeline.record_digest import Digest
from resources.delta.arrow_schema import ROW_SCHEMA
from resources.delta.stage_reader import StageReader
from resources.delta.stage_writer import RecordsDirectory
from schemas.kafka.partition import SourcePartition
from schemas.staging.segment import Segment


def row(source, offset, *, timestamp_ms=None):
    """Return a record whose value names its source partition and offset."""
    return {
        "topic": source.topic,
        "topic_id": source.topic_id,
        "partition": source.partition,
        "offset": offset,
        "timestamp_ms": offset if timestamp_ms is None else timestamp_ms,
        "timestamp_type": 1,
        "leader_epoch": 0,
        "key": b"%d" % offset,
        "value": None if offset % 5 == 0 else b"%s %d" % (str(source).encode(), offset),
        "headers": [{"key": "n", "value": b"%d" % offset}] if offset % 3 == 0 else None,
    }


def batch_of(rows):
    return pa.RecordBatch.from_pylist(list(rows), schema=ROW_SCHEMA)


def stage_records(context, *ranges, staged_at_ms=1, times=None):
    """Stage *ranges* of (source partition, start, end) in one commit and seal it, like the loop.

    *times* maps offsets to timestamps; by default a timestamp is the offset. Return the file.
    """
    records, segments = context.lake.records("us-east"), context.lake.segments("us-east")
    records.refresh()
    sequence = records.version + 1
    times = times or {}
    ledger = []
    with RecordsDirectory(records.path).records_file(sequence) as out:
        for source, start, end in sorted(ranges, key=lambda each: (each[0].slot, each[0])):
            rows = [row(source, i, timestamp_ms=times.get(i)) for i in range(start, end)]
            out.write(source.slot, batch_of(rows))
            ledger.append(segment_of(source, rows, sequence, staged_at_ms))
        file = out.close()
    records.stage([file], ledger, {s.source: records.frontier(s.source) for s in ledger})
    segments.seal()
    return file


def segment_of(source, rows, sequence, staged_at_ms):
    digest = Digest()
    size = digest.add(batch_of(rows))
    stamps = [each["timestamp_ms"] for each in rows]
    start, end = rows[0]["offset"], rows[-1]["offset"] + 1
    return Segment(
        source.topic, source.topic_id, source.partition, start, end, len(rows), size, start,
        end - 1, min(stamps), max(stamps), 0, 0, end, end, "", digest.hexdigest(), staged_at_ms,
        sequence,
    )  # fmt: skip


def held(context, *sources):
    """Return the staged rows of *sources*, read like replay reads them."""
    records = context.lake.records("us-east")
    records.refresh()
    found = {source: [] for source in sources}
    for slot in {source.slot for source in sources}:
        paths = [file.path for file in records.files() if file.has_slot(slot)]
        wanted = {source: 0 for source in sources if source.slot == slot}
        for source, rows in StageReader(records.path).rows(paths, wanted):
            found[source] += rows.to_pylist()
    return found


def in_one_slot(count, *, slot=3, topic_id="life1"):
    """Return partitions of *count* topics that share a slot."""
    found = (SourcePartition(f"topic-{i}", topic_id, 0) for i in range(1000))
    return [source for source in found if source.slot == slot][:count]
