"""Recovery finds where a target partition resumes and repairs its map before records are sent."""

import pytest

from pipeline.replay.recovery import ResumePoint, recover
from schemas.config.flow import Flow
from schemas.errors.lake import StageIncompleteError
from schemas.errors.target import (
    MapAmbiguousError,
    MapUnpairedError,
    ProgressAheadError,
    ProgressBehindError,
    ProgressUnknownError,
    TargetChangedError,
    TargetTruncatedError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import (
    ChainLink,
    MapEnd,
    MissingProgressPolicy,
    PartitionWork,
    Progress,
)
from tests.support.fake_cluster import FakeCluster, FakeStageReader, FakeTarget, RecordContent

FLOW = Flow("us-east", "eu-west")
ORDERS, REMOTE = TopicPartition("orders", 0), TopicPartition("us-east.orders", 0)
LINKS = (ChainLink("life1", 0, 5, 4), ChainLink("life1", 5, 10, 3))
# Offsets 2, 6 and 9 hold no record.
STAGED = {"life1": {0: b"a", 1: b"b", 3: b"c", 4: b"d", 5: b"e", 7: b"f", 8: b"g"}}


class RecoveryCase:
    """A stage and a target with a log; `recover` takes the progress and the map to recover from."""

    def __init__(self, incarnations=STAGED, links=LINKS):
        self.cluster = FakeCluster("eu-west")
        self.id = self.cluster.make("us-east.orders")
        self.staged, self.links = FakeStageReader(), links
        for incarnation, records in incarnations.items():
            shown = [(offset, RecordContent(value)) for offset, value in records.items()]
            self.staged.keep("file", SourcePartition("orders", incarnation, 0), shown)

    def hold(self, letters):
        """Append records to the target; `.` is a marker."""
        for c in letters:
            if c == ".":
                self.cluster.mark(REMOTE)
            else:
                self.cluster.append(REMOTE, RecordContent(c.encode()))

    def at(self, next_offset, incarnation="life1", target=None):
        return Progress(next_offset, incarnation, target or self.id)

    def recover(
        self,
        progress,
        mapped=None,
        downstream_end=0,
        links=None,
        missing_progress=MissingProgressPolicy.SEARCH,
        end=None,
    ):
        """Recover with the log's *end*; its default is not before the map's end."""
        known = MapEnd(mapped, downstream_end) if mapped else None
        work = PartitionWork(ORDERS, REMOTE, self.id, links or self.links, known, missing_progress)
        log = FakeTarget(self.cluster, FLOW, 0)
        if end is None:
            end = max(downstream_end, log.end_offsets([REMOTE])[REMOTE])
        return recover(work, ("file",), progress, end, self.staged, log)


@pytest.fixture
def case():
    return RecoveryCase()


def test_a_partition_that_was_never_written_begins_at_the_first_staged_record(case):
    assert case.recover(None).at == case.at(0)


def test_replay_resumes_at_progress_that_equals_the_maps_end(case):
    resume_point = case.recover(case.at(5), case.at(5), 6)

    assert (resume_point.at, resume_point.repairs) == (case.at(5), ())


def test_records_between_the_maps_end_and_progress_are_paired_with_the_log(case):
    case.hold("abcd.ef.")

    resume_point = case.recover(case.at(8), case.at(5), 4)

    (batch,) = resume_point.repairs
    assert resume_point.at == batch.after == case.at(8)
    assert batch.before == case.at(5)
    assert batch.runs == (OffsetRun(5, 5, 1), OffsetRun(7, 6, 1))
    assert (batch.records, batch.rebuilt) == (2, True)


def test_a_lost_map_is_rebuilt_from_the_beginning(case):
    case.hold("xabcd.ef.")

    (batch,) = case.recover(case.at(8)).repairs

    assert batch.before is None
    pairs = [(run.upstream_start, run.downstream_start, run.length) for run in batch.runs]
    assert pairs == [(0, 1, 2), (3, 3, 2), (5, 6, 1), (7, 7, 1)]


def test_progress_past_the_map_without_records_between_needs_no_pairing(case):
    resume_point = case.recover(case.at(10), case.at(9), 9)

    (batch,) = resume_point.repairs
    assert (batch.after, batch.runs, batch.records) == (case.at(10), (), 0)


def test_records_below_progress_that_the_target_lacks_are_an_error(case):
    case.hold("abcd.e.")

    with pytest.raises(MapUnpairedError, match=r"of 2 records staged in \[5, 8\) only 1"):
        case.recover(case.at(8), case.at(5), 4)


def test_a_lost_map_is_rebuilt_for_the_records_that_the_target_still_holds(case):
    case.hold("xabcd.ef.")
    case.cluster.expire(REMOTE, 4)

    (batch,) = case.recover(case.at(8)).repairs

    assert batch.runs == (OffsetRun(4, 4, 1), OffsetRun(5, 6, 1), OffsetRun(7, 7, 1))
    assert (batch.before, batch.after, batch.complete_from) == (None, case.at(8), 4)


def test_if_the_log_start_is_past_the_maps_end_the_map_continues_from_the_log_start(case):
    case.hold("abcd.ef.")
    case.cluster.expire(REMOTE, 6)

    (batch,) = case.recover(case.at(8), case.at(4), 4).repairs

    assert (batch.runs, batch.complete_from) == ((OffsetRun(7, 6, 1),), 6)


def test_a_log_start_below_the_maps_end_does_not_explain_a_loss_after_it(case):
    case.hold("abcd.f.")
    case.cluster.expire(REMOTE, 4)

    with pytest.raises(MapUnpairedError):
        case.recover(case.at(8), case.at(5), 4)


def test_a_loss_after_the_log_start_is_an_error(case):
    case.hold("abd.ef.")
    case.cluster.expire(REMOTE, 1)

    with pytest.raises(MapUnpairedError, match="of 6 records"):
        case.recover(case.at(8))


def test_a_compacted_topic_is_mapped_for_the_records_that_it_still_holds(case):
    case.hold("abcd.ef.")
    case.cluster.clean(REMOTE, 0, 2)

    (batch,) = case.recover(case.at(8)).repairs

    pairs = [(run.upstream_start, run.downstream_start, run.length) for run in batch.runs]
    assert pairs == [(1, 1, 1), (4, 3, 1), (5, 5, 1), (7, 6, 1)]
    assert batch.complete_from == 4


def test_an_equal_foreign_record_is_ambiguous(case):
    case.hold("abcd.eeff")

    with pytest.raises(MapAmbiguousError):
        case.recover(case.at(8), case.at(5), 4)


def test_progress_behind_the_map_is_an_error_with_both_numbers(case):
    with pytest.raises(ProgressBehindError, match="is 5, the offset map ends at 8"):
        case.recover(case.at(5), case.at(8), 6)


@pytest.mark.parametrize("known", ["progress", "map"])
def test_a_changed_target_topic_id_is_an_error_in_progress_and_in_the_map(case, known):
    former = case.at(5, target="former")

    with pytest.raises(TargetChangedError, match=f"id former, now {case.id}"):
        case.recover(*((former, None) if known == "progress" else (None, former)))


def test_lost_progress_is_recovered_from_the_log_after_the_maps_end(case):
    case.hold("abcd.ef.")

    resume_point = case.recover(None, case.at(5), 5)

    (batch,) = resume_point.repairs
    assert resume_point.at == batch.after == case.at(8)
    assert batch.records == 2


def test_lost_progress_is_the_maps_end_if_nothing_was_written_after_it(case):
    case.hold("abcd.xyz")

    assert case.recover(None, case.at(5), 5).at == case.at(5)


def test_progress_past_the_staged_end_is_an_error_and_no_map_with_holes(case):
    case.hold("abcdefgh")

    with pytest.raises(ProgressAheadError, match="is 12, but what is staged ends at 10"):
        case.recover(case.at(12), case.at(5), 4)


def test_missing_links_after_the_maps_end_are_an_error_and_no_map_with_holes(case):
    case.hold("abcd.efg.")

    with pytest.raises(StageIncompleteError, match="from 2 on"):
        case.recover(case.at(10), case.at(2), 2, links=LINKS[1:])


def test_a_missing_file_is_an_error_and_no_map_with_holes():
    case = RecoveryCase({"life1": {o: v for o, v in STAGED["life1"].items() if o >= 5}})
    case.hold("abcd.ef.")

    with pytest.raises(StageIncompleteError, match="not all of the 4 records"):
        case.recover(case.at(8))


TWO_INCARNATIONS = {"life1": {0: b"a", 1: b"b"}, "life2": {0: b"c", 2: b"d"}}
TWO_LINKS = (ChainLink("life1", 0, 3, 2), ChainLink("life2", 0, 4, 2))


def test_a_map_lost_across_two_incarnations_gets_one_repair_for_each():
    case = RecoveryCase(TWO_INCARNATIONS, TWO_LINKS)
    case.hold("a.b.c.")

    first, second = case.recover(case.at(1, "life2")).repairs

    assert first.after.incarnation == "life1"
    assert first.runs == (OffsetRun(0, 0, 1), OffsetRun(1, 2, 1))
    assert second.before == first.after
    assert second.after == case.at(1, "life2")
    assert second.runs == (OffsetRun(0, 4, 1),)


def test_lost_progress_is_recovered_in_a_later_incarnation():
    case = RecoveryCase(TWO_INCARNATIONS, TWO_LINKS)
    case.hold("a.b.c.")

    resume_point = case.recover(None, case.at(1), 1)

    assert resume_point.at == case.at(1, "life2")
    assert [batch.after.incarnation for batch in resume_point.repairs] == ["life1", "life2"]


def test_progress_of_an_earlier_incarnation_is_behind_at_any_offset():
    case = RecoveryCase(TWO_INCARNATIONS, TWO_LINKS)

    with pytest.raises(ProgressBehindError):
        case.recover(case.at(99, "life1"), case.at(1, "life2"), 1)


# Without progress and without a map


def pairs(batch):
    return [(run.upstream_start, run.downstream_start, run.length) for run in batch.runs]


def test_without_progress_and_map_a_complete_log_shows_where_replay_ended(case):
    case.hold("xabcd.ey.")

    resume_point = case.recover(None)

    (batch,) = resume_point.repairs
    assert resume_point.at == batch.after == case.at(6)
    assert pairs(batch) == [(0, 1, 2), (3, 3, 2), (5, 6, 1)]


def test_without_progress_and_map_replay_begins_if_the_log_has_no_staged_records(case):
    case.hold("xyz.")

    assert case.recover(None) == ResumePoint(case.at(0))


def test_without_progress_and_map_equal_foreign_records_are_an_ambiguity_error(case):
    case.hold("abb")

    with pytest.raises(MapAmbiguousError):
        case.recover(None)


def test_without_progress_map_and_log_head_replay_resumes_after_the_last_staged_record(case):
    case.hold("abcd.ex.")
    case.cluster.expire(REMOTE, 3)

    resume_point = case.recover(None)

    (batch,) = resume_point.repairs
    assert (resume_point.at, batch.complete_from) == (case.at(6), 4)
    assert pairs(batch) == [(4, 3, 1), (5, 5, 1)]


def test_without_progress_and_map_a_compacted_log_is_resumed_after_its_last_staged_record(case):
    case.hold("abcd.e.")
    case.cluster.clean(REMOTE, 0, 2)

    resume_point = case.recover(None)

    assert resume_point.at == case.at(6)
    assert pairs(resume_point.repairs[0]) == [(1, 1, 1), (4, 3, 1), (5, 5, 1)]


@pytest.mark.parametrize(
    "held", ["abcd.", "abcd.xy"], ids=["no records left", "only foreign records"]
)
def test_unknown_progress_is_an_error_until_an_operator_requests_a_restart(case, held):
    case.hold(held)
    case.cluster.expire(REMOTE, 5)

    with pytest.raises(ProgressUnknownError, match=rf"\[5, {len(held)}\)"):
        case.recover(None)

    assert case.recover(None, missing_progress=MissingProgressPolicy.SEARCH_OR_BEGIN).at == case.at(
        0
    )


def test_a_restart_does_not_duplicate_records_that_the_log_holds(case):
    case.hold("ab.")

    assert case.recover(None, missing_progress=MissingProgressPolicy.SEARCH_OR_BEGIN).at == case.at(
        2
    )


def test_a_point_in_time_replay_does_not_search_the_log(case):
    case.hold("abcd.ef.")

    assert case.recover(None, missing_progress=MissingProgressPolicy.BEGIN) == ResumePoint(
        case.at(0)
    )


def test_a_restart_ignores_progress_of_a_previous_target_topic(case):
    former = case.at(5, target="former")

    assert case.recover(
        former, missing_progress=MissingProgressPolicy.SEARCH_OR_BEGIN
    ).at == case.at(0)
    with pytest.raises(TargetChangedError):
        case.recover(former, missing_progress=MissingProgressPolicy.BEGIN)


def test_a_log_that_ends_before_the_maps_end_is_an_error_with_both_numbers(case):
    case.hold("abc")

    with pytest.raises(TargetTruncatedError, match=r"ends at 3, but records up to 4"):
        case.recover(case.at(5), case.at(5), 4, end=3)
