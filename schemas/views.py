"""SQL views over the lake's tables, in SQL that all supported engines accept.

Columns with a keyword's name (`end`, `offset`) are qualified with their table. So they need no
quotes, which differ between engines.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.tables import Column, read_columns


@dataclass(frozen=True)
class View:
    """A view over `records` and `segments` of one source cluster: its row, its columns, its SQL."""

    name: str
    row: str
    columns: tuple[Column, ...]
    sql: str


_GAP_COLUMNS = """\
topic        string ! the topic's name
topic_id     string ! its incarnation
partition    int    ! the partition
start_offset long   ! first offset of the interval
end_offset   long   ! offset after it
offsets      long   ! number of its offsets without a record; smaller than the interval if records \
in it were deleted from the stage
cause        string ! why they have no record
version      long   ! version of `records` that staged its range
staged_at_ms long   ! time of that commit
"""

GAPS = View(
    name="gaps",
    row="an interval of upstream offsets without records",
    columns=read_columns(_GAP_COLUMNS.splitlines()),
    # Sorting uses three numbers and no text, because there can be many records.
    sql="""\
WITH incomplete AS (
  SELECT * FROM segments s WHERE s.end - s.start > s.count
),
incarnations AS (
  SELECT i.topic, i.topic_id, i.partition,
         row_number() OVER (ORDER BY i.topic, i.topic_id, i.partition) AS incarnation
  FROM incomplete i
  GROUP BY i.topic, i.topic_id, i.partition
),
points AS (
  -- order at the same offset: end of a range (0), start of a range (1), record (2)
  SELECT l.incarnation, s.end AS at, 0 AS kind FROM segments s
  JOIN incarnations l ON l.topic = s.topic AND l.topic_id = s.topic_id AND l.partition = s.partition
  UNION ALL
  SELECT l.incarnation, s.start AS at, 1 AS kind FROM segments s
  JOIN incarnations l ON l.topic = s.topic AND l.topic_id = s.topic_id AND l.partition = s.partition
  UNION ALL
  SELECT l.incarnation, r.offset AS at, 2 AS kind FROM records r
  JOIN incarnations l ON l.topic = r.topic AND l.topic_id = r.topic_id AND l.partition = r.partition
),
placed AS (
  SELECT p.incarnation, p.at, p.kind,
         lag(CASE WHEN p.kind = 2 THEN p.at + 1 ELSE p.at END)
           OVER (PARTITION BY p.incarnation ORDER BY p.at, p.kind) AS since,
         max(CASE WHEN p.kind = 1 THEN p.at END)
           OVER (PARTITION BY p.incarnation ORDER BY p.at, p.kind
                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS segment
  FROM points p
),
held AS (
  SELECT p.incarnation, p.segment, count(*) AS held FROM placed p WHERE p.kind = 2
  GROUP BY p.incarnation, p.segment
),
ranges AS (
  SELECT l.incarnation, i.topic, i.topic_id, i.partition, i.start AS first_offset,
         i.end AS end_offset, i.end - i.start - i.count AS offsets,
         i.count - coalesce(h.held, 0) AS gone,
         i.gap_cause AS cause, i.version, i.staged_at_ms
  FROM incomplete i
  JOIN incarnations l ON l.topic = i.topic AND l.topic_id = i.topic_id AND l.partition = i.partition
  LEFT JOIN held h ON h.incarnation = l.incarnation AND h.segment = i.start
),
firsts AS (
  SELECT s.topic, s.topic_id, s.partition, s.start AS first_offset, s.low, s.version,
         s.staged_at_ms, row_number() OVER (PARTITION BY s.topic, s.topic_id, s.partition
           ORDER BY s.version, s.end) AS nth
  FROM segments s
)
SELECT g.topic, g.topic_id, g.partition, h.since AS start_offset, h.at AS end_offset,
       h.at - h.since AS offsets, g.cause, g.version, g.staged_at_ms
FROM placed h JOIN ranges g ON g.incarnation = h.incarnation AND g.first_offset = h.segment
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
