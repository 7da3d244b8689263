"""Progress, map and log of a target partition are made to agree before anything is sent."""

import pytest

from pipeline.replay.recovery import Settled, settle
from schemas.config.flow import Flow
from schemas.errors import (
    MapAmbiguousError,
    MapUnpairedError,
    ProgressAheadError,
    ProgressBehindError,
    ProgressUnknownError,
    StageIncompleteError,
    TargetChangedError,
    TargetTruncatedError,
)
from schemas.kafka.partition import SourcePartition, TopicPartition
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import Link, Mapped, PartitionWork, Progress, Unknown
from tests.support.fake_cluster import FakeCluster, FakeStaged, FakeTarget, Said

FLOW = Flow("us-east", "eu-west")
ORDERS, REMOTE = TopicPartition("orders", 0), TopicPartition("us-east.orders", 0)
LINKS = (Link("life1", 0, 5, 4), Link("life1", 5, 10, 3))
# Offsets 2, 6 and 9 hold no record.
STAGED = {"life1": {0: b"a", 1: b"b", 3: b"c", 4: b"d", 5: b"e", 7: b"f", 8: b"g"}}


class Place:
    """A stage, a target with a log, and what is known of the target."""

    def __init__(self, lives=STAGED, links=LINKS):
        self.cluster = FakeCluster("eu-west")
        self.id = self.cluster.make("us-east.orders")
        self.staged, self.links = FakeStaged(), links
        for life, records in lives.items():
            shown = [(offset, Said(value)) for offset, value in records.items()]
            self.staged.keep("file", SourcePartition("orders", life, 0), shown)

    def hold(self, letters):
        """Put records on the target; `.` is a marker."""
        for c in letters:
            if c == ".":
                self.cluster.mark(REMOTE)
            else:
                self.cluster.append(REMOTE, Said(c.encode()))

    def at(self, next_offset, life="life1", target=None):
        return Progress(next_offset, life, target or self.id)

    def settle(
        self, progress, mapped=None, downstream_end=0, links=None, if_unknown=Unknown.LOOK, end=None
    ):
        """Settle with the log's *end*; where it is not named it is no earlier than the map's."""
        known = Mapped(mapped, downstream_end) if mapped else None
        work = PartitionWork(ORDERS, REMOTE, self.id, links or self.links, known, if_unknown)
        log = FakeTarget(self.cluster, FLOW, 0)
        if end is None:
            end = max(downstream_end, log.ends([REMOTE])[REMOTE])
        return settle(work, ("file",), progress, end, self.staged, log)


@pytest.fixture
def place():
    return Place()


def test_a_partition_that_was_never_written_begins_at_the_stages_beginning(place):
    assert place.settle(None).at == place.at(0)


def test_progress_at_the_maps_end_is_where_it_goes_on(place):
    settled = place.settle(place.at(5), place.at(5), 6)

    assert (settled.at, settled.mended) == (place.at(5), ())


def test_progress_beyond_the_map_is_paired_with_the_log_behind_the_maps_end(place):
    place.hold("abcd.ef.")

    settled = place.settle(place.at(8), place.at(5), 4)

    (move,) = settled.mended
    assert settled.at == move.after == place.at(8)
    assert move.before == place.at(5)
    assert move.runs == (OffsetRun(5, 5, 1), OffsetRun(7, 6, 1))
    assert (move.records, move.rebuilt) == (2, True)


def test_a_map_lost_whole_is_rebuilt_from_the_beginning(place):
    place.hold("xabcd.ef.")

    (move,) = place.settle(place.at(8)).mended

    assert move.before is None
    pairs = [(run.upstream_start, run.downstream_start, run.length) for run in move.runs]
    assert pairs == [(0, 1, 2), (3, 3, 2), (5, 6, 1), (7, 7, 1)]


def test_progress_beyond_the_map_that_holds_no_record_needs_no_pairing(place):
    settled = place.settle(place.at(10), place.at(9), 9)

    (move,) = settled.mended
    assert (move.after, move.runs, move.records) == (place.at(10), (), 0)


def test_records_that_progress_promises_and_the_target_lacks_are_an_error(place):
    place.hold("abcd.e.")

    with pytest.raises(MapUnpairedError, match=r"of 2 records staged in \[5, 8\) only 1"):
        place.settle(place.at(8), place.at(5), 4)


def test_a_map_lost_whole_is_rebuilt_from_where_the_target_still_holds_the_records(place):
    place.hold("xabcd.ef.")
    place.cluster.expire(REMOTE, 4)

    (move,) = place.settle(place.at(8)).mended

    assert move.runs == (OffsetRun(4, 4, 1), OffsetRun(5, 6, 1), OffsetRun(7, 7, 1))
    assert (move.before, move.after, move.complete_from) == (None, place.at(8), 4)


def test_a_log_that_lost_what_lies_behind_the_maps_end_is_mapped_from_there_on(place):
    place.hold("abcd.ef.")
    place.cluster.expire(REMOTE, 6)

    (move,) = place.settle(place.at(8), place.at(4), 4).mended

    assert (move.runs, move.complete_from) == ((OffsetRun(7, 6, 1),), 6)


def test_a_head_that_is_gone_below_the_maps_end_excuses_no_loss_behind_it(place):
    place.hold("abcd.f.")
    place.cluster.expire(REMOTE, 4)

    with pytest.raises(MapUnpairedError):
        place.settle(place.at(8), place.at(5), 4)


def test_a_loss_behind_a_head_that_is_gone_is_an_error(place):
    place.hold("abd.ef.")
    place.cluster.expire(REMOTE, 1)

    with pytest.raises(MapUnpairedError, match="of 6 records"):
        place.settle(place.at(8))


def test_a_compacted_topic_is_mapped_as_far_as_it_is_held(place):
    place.hold("abcd.ef.")
    place.cluster.clean(REMOTE, 0, 2)

    (move,) = place.settle(place.at(8)).mended

    pairs = [(run.upstream_start, run.downstream_start, run.length) for run in move.runs]
    assert pairs == [(1, 1, 1), (4, 3, 1), (5, 5, 1), (7, 6, 1)]
    assert move.complete_from == 4


def test_a_foreign_record_that_says_the_same_is_ambiguous(place):
    place.hold("abcd.eeff")

    with pytest.raises(MapAmbiguousError):
        place.settle(place.at(8), place.at(5), 4)


def test_progress_behind_the_map_is_an_error_with_both_numbers(place):
    with pytest.raises(ProgressBehindError, match="is 5, the offset map ends at 8"):
        place.settle(place.at(5), place.at(8), 6)


@pytest.mark.parametrize("known", ["progress", "map"])
def test_another_target_topic_is_an_error_whoever_knows_the_former_one(place, known):
    former = place.at(5, target="former")

    with pytest.raises(TargetChangedError, match=f"id former, now {place.id}"):
        place.settle(*((former, None) if known == "progress" else (None, former)))


def test_progress_that_is_gone_is_found_again_behind_the_map(place):
    place.hold("abcd.ef.")

    settled = place.settle(None, place.at(5), 5)

    (move,) = settled.mended
    assert settled.at == move.after == place.at(8)
    assert move.records == 2


def test_progress_that_is_gone_is_where_the_map_ends_if_nothing_was_written_since(place):
    place.hold("abcd.xyz")

    assert place.settle(None, place.at(5), 5).at == place.at(5)


def test_progress_beyond_what_is_staged_is_an_error_and_no_map_with_holes(place):
    place.hold("abcdefgh")

    with pytest.raises(ProgressAheadError, match="is 12, but what is staged ends at 10"):
        place.settle(place.at(12), place.at(5), 4)


def test_links_that_do_not_reach_back_to_the_map_are_an_error_and_no_map_with_holes(place):
    place.hold("abcd.efg.")

    with pytest.raises(StageIncompleteError, match="from 2 on"):
        place.settle(place.at(10), place.at(2), 2, links=LINKS[1:])


def test_a_file_that_is_missing_is_an_error_and_no_map_with_holes():
    place = Place({"life1": {o: v for o, v in STAGED["life1"].items() if o >= 5}})
    place.hold("abcd.ef.")

    with pytest.raises(StageIncompleteError, match="not all of the 4 records"):
        place.settle(place.at(8))


TWO_LIVES = {"life1": {0: b"a", 1: b"b"}, "life2": {0: b"c", 2: b"d"}}
TWO_LINKS = (Link("life1", 0, 3, 2), Link("life2", 0, 4, 2))


def test_a_map_lost_across_two_incarnations_is_a_move_for_each():
    place = Place(TWO_LIVES, TWO_LINKS)
    place.hold("a.b.c.")

    first, second = place.settle(place.at(1, "life2")).mended

    assert first.after.incarnation == "life1"
    assert first.runs == (OffsetRun(0, 0, 1), OffsetRun(1, 2, 1))
    assert second.before == first.after
    assert second.after == place.at(1, "life2")
    assert second.runs == (OffsetRun(0, 4, 1),)


def test_progress_that_is_gone_is_found_again_in_a_later_incarnation():
    place = Place(TWO_LIVES, TWO_LINKS)
    place.hold("a.b.c.")

    settled = place.settle(None, place.at(1), 1)

    assert settled.at == place.at(1, "life2")
    assert [move.after.incarnation for move in settled.mended] == ["life1", "life2"]


def test_a_former_life_is_behind_whatever_its_offset():
    place = Place(TWO_LIVES, TWO_LINKS)

    with pytest.raises(ProgressBehindError):
        place.settle(place.at(99, "life1"), place.at(1, "life2"), 1)


# Neither progress nor map


def pairs(move):
    return [(run.upstream_start, run.downstream_start, run.length) for run in move.runs]


def test_where_both_are_gone_a_whole_log_tells_how_far_replay_was(place):
    place.hold("xabcd.ey.")

    settled = place.settle(None)

    (move,) = settled.mended
    assert settled.at == move.after == place.at(6)
    assert pairs(move) == [(0, 1, 2), (3, 3, 2), (5, 6, 1)]


def test_where_both_are_gone_a_whole_log_without_staged_records_is_begun(place):
    place.hold("xyz.")

    assert place.settle(None) == Settled(place.at(0))


def test_where_both_are_gone_identical_foreign_records_are_ambiguous_and_never_guessed(place):
    place.hold("abb")

    with pytest.raises(MapAmbiguousError):
        place.settle(None)


def test_where_both_are_gone_and_the_logs_head_too_the_last_staged_record_in_it_tells(place):
    place.hold("abcd.ex.")
    place.cluster.expire(REMOTE, 3)

    settled = place.settle(None)

    (move,) = settled.mended
    assert (settled.at, move.complete_from) == (place.at(6), 4)
    assert pairs(move) == [(4, 3, 1), (5, 5, 1)]


def test_where_both_are_gone_a_compacted_log_tells_by_the_last_staged_record_in_it(place):
    place.hold("abcd.e.")
    place.cluster.clean(REMOTE, 0, 2)

    settled = place.settle(None)

    assert settled.at == place.at(6)
    assert pairs(settled.mended[0]) == [(1, 1, 1), (4, 3, 1), (5, 5, 1)]


@pytest.mark.parametrize("held", ["abcd.", "abcd.xy"], ids=["nothing left", "only foreign ones"])
def test_where_nothing_can_tell_how_far_replay_was_it_is_refused_until_it_is_ordered(place, held):
    place.hold(held)
    place.cluster.expire(REMOTE, 5)

    with pytest.raises(ProgressUnknownError, match=rf"\[5, {len(held)}\)"):
        place.settle(None)

    assert place.settle(None, if_unknown=Unknown.LOOK_OR_BEGIN).at == place.at(0)


def test_an_order_to_begin_again_does_not_double_what_the_log_holds(place):
    place.hold("ab.")

    assert place.settle(None, if_unknown=Unknown.LOOK_OR_BEGIN).at == place.at(2)


def test_a_replay_of_its_own_does_not_look_for_its_records(place):
    place.hold("abcd.ef.")

    assert place.settle(None, if_unknown=Unknown.BEGIN) == Settled(place.at(0))


def test_progress_of_a_former_life_is_passed_over_where_it_was_ordered_to_begin_again(place):
    former = place.at(5, target="former")

    assert place.settle(former, if_unknown=Unknown.LOOK_OR_BEGIN).at == place.at(0)
    with pytest.raises(TargetChangedError):
        place.settle(former, if_unknown=Unknown.BEGIN)


def test_a_log_that_ends_before_what_was_written_to_it_is_an_error_with_both_numbers(place):
    place.hold("abc")

    with pytest.raises(TargetTruncatedError, match=r"ends at 3, but records up to 4"):
        place.settle(place.at(5), place.at(5), 4, end=3)
