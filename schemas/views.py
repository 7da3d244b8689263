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
    # Records are sorted by three numbers and no text: there may be a lot of them.
    sql="""\
WITH incomplete AS (
  SELECT * FROM segments s WHERE s.end - s.start > s.count
),
lives AS (
  SELECT i.topic, i.topic_id, i.partition,
         row_number() OVER (ORDER BY i.topic, i.topic_id, i.partition) AS life
  FROM incomplete i
  GROUP BY i.topic, i.topic_id, i.partition
),
points AS (
  -- at the same offset: what ends there (0), what begins there (1), the record (2)
  SELECT l.life, s.end AS at, 0 AS kind FROM segments s
  JOIN lives l ON l.topic = s.topic AND l.topic_id = s.topic_id AND l.partition = s.partition
  UNION ALL
  SELECT l.life, s.start AS at, 1 AS kind FROM segments s
  JOIN lives l ON l.topic = s.topic AND l.topic_id = s.topic_id AND l.partition = s.partition
  UNION ALL
  SELECT l.life, r.offset AS at, 2 AS kind FROM records r
  JOIN lives l ON l.topic = r.topic AND l.topic_id = r.topic_id AND l.partition = r.partition
),
placed AS (
  SELECT p.life, p.at, p.kind,
         lag(CASE WHEN p.kind = 2 THEN p.at + 1 ELSE p.at END)
           OVER (PARTITION BY p.life ORDER BY p.at, p.kind) AS since,
         max(CASE WHEN p.kind = 1 THEN p.at END)
           OVER (PARTITION BY p.life ORDER BY p.at, p.kind
                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS segment
  FROM points p
),
held AS (
  SELECT p.life, p.segment, count(*) AS held FROM placed p WHERE p.kind = 2
  GROUP BY p.life, p.segment
),
ranges AS (
  SELECT l.life, i.topic, i.topic_id, i.partition, i.start AS first_offset, i.end AS end_offset,
         i.end - i.start - i.count AS offsets, i.count - coalesce(h.held, 0) AS gone,
         i.gap_cause AS cause, i.version, i.staged_at_ms
  FROM incomplete i
  JOIN lives l ON l.topic = i.topic AND l.topic_id = i.topic_id AND l.partition = i.partition
  LEFT JOIN held h ON h.life = l.life AND h.segment = i.start
),
firsts AS (
  SELECT s.topic, s.topic_id, s.partition, s.start AS first_offset, s.low, s.version,
         s.staged_at_ms, row_number() OVER (PARTITION BY s.topic, s.topic_id, s.partition
           ORDER BY s.version, s.end) AS nth
  FROM segments s
)
SELECT g.topic, g.topic_id, g.partition, h.since AS start_offset, h.at AS end_offset,
       h.at - h.since AS offsets, g.cause, g.version, g.staged_at_ms
FROM placed h JOIN ranges g ON g.life = h.life AND g.first_offset = h.segment
WHERE h.since < h.at AND h.at <= g.end_offset AND g.gone <= 0
UNION ALL
SELECT g.topic, g.topic_id, g.partition, g.first_offset AS start_offset, g.end_offset,
       g.offsets, g.cause, g.version, g.staged_at_ms
FROM ranges g WHERE g.gone > 0
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
