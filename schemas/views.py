"""What can be asked of the lake's tables beyond their rows, in SQL that engines agree on.

Columns with a keyword's name (`end`, `offset`) are written with their table, so that none needs
quotes, which each engine writes in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.tables import Column


@dataclass(frozen=True)
class View:
    """A question to `records` and `segments` of one source cluster: a row, its columns, its SQL."""

    name: str
    row: str
    columns: tuple[Column, ...]
    sql: str


GAPS = View(
    name="gaps",
    row="an interval of upstream offsets that holds no record",
    columns=(
        Column("topic", "string", "the topic's name", nullable=False),
        Column("topic_id", "string", "its incarnation", nullable=False),
        Column("partition", "int", "the partition", nullable=False),
        Column("start_offset", "long", "first offset of the interval", nullable=False),
        Column("end_offset", "long", "offset behind it", nullable=False),
        Column(
            "offsets",
            "long",
            "how many of them hold no record: fewer than there are where the records between them "
            "have left the stage",
            nullable=False,
        ),
        Column("cause", "string", "what is known of why", nullable=False),
        Column(
            "version",
            "long",
            "version of `records` that staged the range it lies in",
            nullable=False,
        ),
        Column("staged_at_ms", "long", "when that was", nullable=False),
    ),
    sql="""\
WITH incomplete AS (
  SELECT * FROM segments s WHERE s.end - s.start > s.count
),
points AS (
  -- at the same offset: what ends there, what begins there, the record
  SELECT s.topic, s.topic_id, s.partition, s.end AS at, s.end AS next, 0 AS kind,
         CAST(NULL AS BIGINT) AS segment
  FROM segments s
  UNION ALL
  SELECT s.topic, s.topic_id, s.partition, s.start AS at, s.start AS next, 1 AS kind,
         s.start AS segment
  FROM segments s
  UNION ALL
  SELECT r.topic, r.topic_id, r.partition, r.offset AS at, r.offset + 1 AS next, 2 AS kind,
         CAST(NULL AS BIGINT) AS segment
  FROM records r
  WHERE r.topic_id IN (SELECT i.topic_id FROM incomplete i)
),
placed AS (
  SELECT p.topic, p.topic_id, p.partition, p.at, p.kind,
         lag(p.next) OVER (PARTITION BY p.topic, p.topic_id, p.partition ORDER BY p.at, p.kind)
           AS since,
         max(p.segment) OVER (PARTITION BY p.topic, p.topic_id, p.partition ORDER BY p.at, p.kind
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS segment
  FROM points p
),
ranges AS (
  SELECT i.topic, i.topic_id, i.partition, i.start AS first_offset, i.end AS end_offset,
         i.count AS staged, i.gap_cause, i.version, i.staged_at_ms, count(r.at) AS held
  FROM incomplete i
  LEFT JOIN placed r ON r.topic = i.topic AND r.topic_id = i.topic_id
    AND r.partition = i.partition AND r.segment = i.start AND r.kind = 2 AND r.at < i.end
  GROUP BY i.topic, i.topic_id, i.partition, i.start, i.end, i.count, i.gap_cause, i.version,
           i.staged_at_ms
),
firsts AS (
  SELECT s.topic, s.topic_id, s.partition, s.start AS first_offset, s.low, s.version,
         s.staged_at_ms, row_number() OVER (PARTITION BY s.topic, s.topic_id, s.partition
           ORDER BY s.version, s.end) AS nth
  FROM segments s
)
SELECT h.topic, h.topic_id, h.partition, h.since AS start_offset, h.at AS end_offset,
       h.at - h.since AS offsets, g.gap_cause AS cause, g.version, g.staged_at_ms
FROM placed h
JOIN ranges g ON g.topic = h.topic AND g.topic_id = h.topic_id AND g.partition = h.partition
  AND g.first_offset = h.segment
WHERE h.since < h.at AND h.at <= g.end_offset AND g.held = g.staged
UNION ALL
SELECT g.topic, g.topic_id, g.partition, g.first_offset AS start_offset, g.end_offset,
       g.end_offset - g.first_offset - g.staged AS offsets, g.gap_cause AS cause, g.version,
       g.staged_at_ms
FROM ranges g WHERE g.held <> g.staged
UNION ALL
SELECT f.topic, f.topic_id, f.partition, 0 AS start_offset, f.low AS end_offset, f.low AS offsets,
       'gone before staging began' AS cause, f.version, f.staged_at_ms
FROM firsts f WHERE f.nth = 1 AND f.low > 0
UNION ALL
SELECT f.topic, f.topic_id, f.partition, f.low AS start_offset, f.first_offset AS end_offset,
       f.first_offset - f.low AS offsets, 'older than auto.offset.reset=latest' AS cause,
       f.version, f.staged_at_ms
FROM firsts f WHERE f.nth = 1 AND f.first_offset > f.low
""",
)
