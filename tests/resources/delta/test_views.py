"""The view `gaps` has every upstream offset without a record once, and no other offset."""

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resources.delta.arrow_schema import arrow_schema
from resources.delta.lake import DeltaLake
from resources.delta.views import query_view
from schemas.tables import RECORDS
from schemas.views import GAPS


class Stage:
    """Segments and records of cluster `us-east`, written by a test."""

    def __init__(self, root):
        self.lake = DeltaLake(root)
        self.versions = 0

    def stage(self, start, log, *, topic="orders", topic_id="life1", low=0, cause="why", held=None):
        """Stage *log* from *start* on; `.` is an offset without a record.

        *held* are the offsets of records that retention kept; None means all of them.
        """
        offsets = [start + i for i, each in enumerate(log) if each != "."]
        self.versions += 1
        segment = {
            "topic": topic, "topic_id": topic_id, "partition": 0, "start": start,
            "end": start + len(log), "count": len(offsets), "size_bytes": 0, "low": low,
            "stable": 0, "high": 0, "gap_cause": cause if len(offsets) < len(log) else "",
            "digest": "", "staged_at_ms": self.versions, "sequence": 1, "version": self.versions,
        }  # fmt: skip
        rows = [
            {"slot": 0, "topic": topic, "topic_id": topic_id, "partition": 0, "offset": offset}
            for offset in (offsets if held is None else held)
        ]
        self.lake.segments("us-east").append([segment])
        self.lake.records("us-east").append(pa.Table.from_pylist(rows, arrow_schema(RECORDS)))

    def gaps(self, topic=None):
        """Return (topic, incarnation, start, end, offsets, cause) of each gap."""
        return [
            (
                r["topic"],
                r["topic_id"],
                r["start_offset"],
                r["end_offset"],
                r["offsets"],
                r["cause"],
            )
            for r in query_view(GAPS, self.lake, "us-east", topic).to_pylist()
        ]


def test_an_empty_stage_has_no_gaps(lake):
    assert Stage(lake).gaps() == []


def test_each_gap_has_its_range_and_its_cause(lake):
    stage = Stage(lake)
    stage.stage(0, "aa.a")
    stage.stage(4, "...", cause="expired, accepted")
    stage.stage(7, "a..a..", cause="another")

    assert [gap[2:] for gap in stage.gaps()] == [
        (2, 3, 1, "why"),
        (4, 7, 3, "expired, accepted"),
        (8, 10, 2, "another"),
        (11, 13, 2, "another"),
    ]


def test_offsets_before_the_start_of_staging_are_gaps_with_their_cause(lake):
    stage = Stage(lake)
    stage.stage(5, "", low=3)
    stage.stage(5, "a", low=4)

    assert [gap[2:] for gap in stage.gaps()] == [
        (0, 3, 3, "gone before staging began"),
        (3, 5, 2, "older than auto.offset.reset=latest"),
    ]


def test_gaps_of_incarnations_and_of_other_topics_are_separate(lake):
    stage = Stage(lake)
    stage.stage(0, "a.a")
    stage.stage(0, "aaaa.", topic_id="life2")
    stage.stage(0, ".aaaa", topic="users", topic_id="life3")

    assert [gap[:4] for gap in stage.gaps()] == [
        ("orders", "life1", 1, 2),
        ("orders", "life2", 4, 5),
        ("users", "life3", 0, 1),
    ]
    assert [gap[0] for gap in stage.gaps("users")] == ["users"]
    assert stage.gaps("it's none") == []


def test_gaps_between_records_that_retention_removed_are_only_counted(lake):
    stage = Stage(lake)
    stage.stage(0, "a.a..a", held=[])
    stage.stage(6, "aaa", held=[])
    stage.stage(9, "a.a")

    assert [gap[2:] for gap in stage.gaps()] == [(0, 6, 3, "why"), (10, 11, 1, "why")]


def test_records_without_a_segment_are_not_in_the_view(lake):
    stage = Stage(lake)
    stage.stage(0, "a.", held=[0, 2, 5])

    assert [gap[2:] for gap in stage.gaps()] == [(1, 2, 1, "why")]


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text("a.", max_size=9), min_size=1, max_size=6))
def test_gaps_and_records_cover_every_offset_once(tmp_path_factory, logs):
    stage, at, records = Stage(tmp_path_factory.mktemp("lake")), 0, []
    for log in logs:
        stage.stage(at, log)
        records += [at + i for i, each in enumerate(log) if each == "a"]
        at += len(log)

    gaps = [offset for gap in stage.gaps() for offset in range(gap[2], gap[3])]

    assert sorted(gaps + records) == list(range(at))
