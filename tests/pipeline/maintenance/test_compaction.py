"""Compaction joins files level by level and keeps order, content and sequence."""

from dataclasses import dataclass, field
from itertools import groupby
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.maintenance import compaction
from pipeline.maintenance.compaction import (
    FULL_BYTES,
    SEQUENCES_PER_LEVEL,
    check_unchanged,
    collect_stats,
    select_run,
    slot_mask,
    sort_by_partition,
)
from schemas.errors.lake import LakeError
from schemas.kafka.partition import SLOT_COUNT
from schemas.staging.segment import FOREIGN_SEQUENCE, RecordsFile
from tests.support.staged_lake import batch_of, in_one_slot, row

MIB = 2**20
LAST_LEVEL = len(SEQUENCES_PER_LEVEL)
A, B = in_one_slot(2)
RECREATED_A = in_one_slot(1, topic_id="life2")[0]
ALL_SLOTS = 2**SLOT_COUNT - 1


def file(sequence, bytes_per_slot=100, slots=0b1, level=0, name="file"):
    """Return a file of *sequence* with *bytes_per_slot* for each bit of *slots*."""
    size_bytes = bytes_per_slot * slots.bit_count()
    return RecordsFile(f"{name}-{sequence}-{slots:04x}", slots, sequence, size_bytes, level)


def files_of(*groups):
    """Return files in order of sequence; a group is a number of files and their kind."""
    kinds = [{"bytes_per_slot": 100, **kind} for count, kind in groups for _ in range(count)]
    return [file(sequence, **kind) for sequence, kind in enumerate(kinds, 1)]


def bits(slots):
    return [1 << slot for slot in range(SLOT_COUNT) if slots >> slot & 1]


def bytes_per_slot_of(files):
    return sum(f.size_bytes for f in files) / slot_mask(files).bit_count()


def members_of(files):
    """Return the files of each sequence of *files*."""
    return [[*members] for _, members in groupby(files, key=lambda f: f.sequence)]


def is_final(members):
    """Return whether the files of one sequence must not be joined again."""
    return max(f.level for f in members) >= LAST_LEVEL or bytes_per_slot_of(members) >= FULL_BYTES


SIZES = st.sampled_from([100, 100_000, MIB, 5 * MIB, 30 * MIB, 64 * MIB, 80 * MIB])


@st.composite
def live_files(draw):
    """Return files in order of sequence, perhaps with some that another program wrote first.

    Each sequence has the one file of a tick, the files of two workers, or a file for each slot.
    """
    mask = draw(st.sampled_from([0b1, 0b11, 0b111, ALL_SLOTS]))
    foreign = draw(st.integers(0, 6))
    found = [RecordsFile(f"foreign-{i}", ALL_SLOTS, FOREIGN_SEQUENCE, 10) for i in range(foreign)]
    sequence = 0
    for _ in range(draw(st.integers(0, 12))):
        size, slots = draw(SIZES), draw(st.integers(1, mask)) & mask or mask
        level = draw(st.sampled_from([0, 0, 1, 1, 2, 3]))
        split = draw(st.sampled_from([[slots], [slots & 0x5555, slots & 0xAAAA], bits(slots)]))
        for _ in range(draw(st.sampled_from([1, 4, 16, 40]))):
            sequence += draw(st.sampled_from([1, 1, 7]))
            found += [file(sequence, size, each, level) for each in split if each]
    return found


@dataclass
class Table:
    """Live files, and how many times the records of each were written again."""

    live: list[RecordsFile] = field(default_factory=list)
    times: dict[str, int] = field(default_factory=dict)
    joins: int = 0

    def join(self, min_sequences):
        """Replace the next run by one file for each slot; return the run."""
        run = select_run(self.live, min_sequences)
        if run:
            self.joins += 1
            times = max(self.times.get(f.path, 0) for f in run) + 1
            joined = [self._joined(run, slot) for slot in bits(slot_mask(run))]
            self.times |= {f.path: times for f in joined}
            at = self.live.index(run[0])
            self.live[at : at + len(run)] = joined
        return run

    def _joined(self, run, slot):
        size = sum(f.size_bytes // f.slots.bit_count() for f in run if f.slots & slot)
        level = 1 + max(f.level for f in run)
        return file(run[-1].sequence, size, slot, level, f"joined-{self.joins}")


def runs_of(files, min_sequences):
    """Yield the live files and the run that is selected from them, until no file is joined."""
    table = Table([*files])
    while run := (before := [*table.live]) and table.join(min_sequences):
        yield before, run


TABLES = live_files(), st.sampled_from([2, 10, SEQUENCES_PER_LEVEL[0]])


@given(*TABLES)
def test_a_run_has_all_files_of_consecutive_sequences(files, min_sequences):
    for live, run in runs_of(files, min_sequences):
        first, last = run[0].sequence, run[-1].sequence
        assert run == [f for f in live if first <= f.sequence <= last]


@given(*TABLES)
def test_a_run_has_at_least_four_files_for_each_file_that_replaces_them(files, min_sequences):
    for _, run in runs_of(files, min_sequences):
        assert len(run) >= 4 * slot_mask(run).bit_count()


@given(*TABLES)
def test_a_run_is_full_or_has_enough_sequences_of_its_level(files, min_sequences):
    for _, run in runs_of(files, min_sequences):
        levels = [max(f.level for f in members) for members in members_of(run)]
        least = (min_sequences, *SEQUENCES_PER_LEVEL[1:])[max(levels)]
        assert levels.count(max(levels)) >= least or bytes_per_slot_of(run) >= FULL_BYTES


@given(*TABLES)
def test_files_that_are_full_or_of_the_last_level_or_foreign_are_not_joined(files, min_sequences):
    for _, run in runs_of(files, min_sequences):
        assert FOREIGN_SEQUENCE not in {f.sequence for f in run}
        assert not any(map(is_final, members_of(run)))


FULL, HALF_FULL = {"bytes_per_slot": FULL_BYTES}, {"bytes_per_slot": FULL_BYTES // 2}
QUARTER_FULL = {"bytes_per_slot": FULL_BYTES // 4}
STAGED, LEVEL_1, LEVEL_2, LEVEL_3 = ({"level": level} for level in range(4))
MOST_1 = QUARTER_FULL | LEVEL_1


@pytest.mark.parametrize(
    ("groups", "min_sequences", "run"),
    [
        pytest.param([(255, STAGED)], 256, (), id="too few sequences"),
        pytest.param([(300, STAGED)], 256, (1, 256), id="no more than its level has"),
        pytest.param([(9, STAGED)], 9, (1, 9), id="fewer than a run has"),
        pytest.param([(6, QUARTER_FULL)], 256, (1, 4), id="a full run"),
        pytest.param([(6, HALF_FULL)], 256, (), id="a full run of too few files"),
        pytest.param([(7, {"slots": 0b11})], 2, (), id="too few files for two slots"),
        pytest.param([(8, {"slots": 0b11})], 2, (1, 8), id="enough for two slots"),
        pytest.param([(9, STAGED), (1, FULL), (9, STAGED)], 10, (), id="not across a full file"),
        pytest.param(
            [(9, STAGED), (1, LEVEL_1), (9, STAGED)], 10, (), id="not across a higher level"
        ),
        pytest.param([(15, LEVEL_1)], 2, (), id="too few sequences of level 1"),
        pytest.param([(17, LEVEL_1)], 2, (1, 16), id="level 1"),
        pytest.param([(15, LEVEL_2)], 2, (), id="too few sequences of level 2"),
        pytest.param([(17, LEVEL_2)], 2, (1, 16), id="level 2"),
        pytest.param([(300, LEVEL_3)], 2, (), id="nothing of level 3"),
        pytest.param([(300, FULL)], 2, (), id="nothing full"),
        pytest.param(
            [(16, LEVEL_2), (16, LEVEL_1), (9, STAGED)], 9, (33, 41), id="the lowest level first"
        ),
        pytest.param(
            [(8, LEVEL_1), (3, STAGED), (8, LEVEL_1)], 256, (1, 19), id="a lower level between"
        ),
        pytest.param([(3, MOST_1), (1, QUARTER_FULL)], 256, (), id="a lower level at the end"),
        pytest.param([(4, MOST_1), (1, QUARTER_FULL)], 256, (1, 4), id="a full run of level 1"),
    ],
)
def test_a_run_is_joined_as_soon_as_it_is_complete(groups, min_sequences, run):
    found = [f.sequence for f in select_run(files_of(*groups), min_sequences)]

    assert (found[:1] + found[-1:], len(found)) == ([*run], 1 + run[1] - run[0] if run else 0)


def test_a_file_that_another_program_wrote_neither_joins_a_run_nor_ends_one():
    foreign = RecordsFile("foreign", ALL_SLOTS, FOREIGN_SEQUENCE, 80 * MIB)
    own = files_of((256, STAGED))

    assert select_run([foreign, *own]) == own


FEWER_PER_LEVEL = (16, 4, 4)
"""Sequences that are joined, so that few ticks reach the last level."""


@pytest.mark.parametrize(
    ("per_level", "slots", "bytes_per_slot", "ticks_between", "level"),
    [
        pytest.param(SEQUENCES_PER_LEVEL, ALL_SLOTS, 100, 1_000, 3, id="as many as there are"),
        *(
            pytest.param(FEWER_PER_LEVEL, 0b1111, size, ticks_between, level)
            for size, level in ((100, 3), (MIB, 2), (4 * MIB, 1))
            for ticks_between in (1_000, 5, 1)
        ),
    ],
)
def test_in_a_long_stream_the_number_of_files_levels_off_and_each_record_is_written_again_thrice(
    monkeypatch, per_level, slots, bytes_per_slot, ticks_between, level
):
    """A file is full, or of the last level, when its records are at *level*."""
    monkeypatch.setattr(compaction, "SEQUENCES_PER_LEVEL", per_level)
    ticks_per_final = prod(per_level[:level])
    table, final = Table(), set()
    for sequence in range(1, max(3_000, 2 * ticks_per_final + 1_000) + 1):
        table.live.append(file(sequence, bytes_per_slot, slots))
        if sequence % ticks_between:
            continue
        while table.join(per_level[0]):
            pass
        now = {f for members in members_of(table.live) if is_final(members) for f in members}
        assert final <= now, "a final file was joined"
        final = now
        assert len(final) == sequence // ticks_per_final * slots.bit_count()
        others = len(table.live) - len(final)
        assert others < per_level[0] + sum(per_level[1:]) * slots.bit_count()

    assert final
    assert max(table.times.values()) == level <= 3


def rows(source, *offsets):
    return source, batch_of(row(source, offset) for offset in offsets)


def test_rows_are_sorted_by_topic_and_partition_and_partitions_keep_their_order():
    along_the_files = [rows(A, 0, 1), rows(B, 5), rows(A, 2), rows(B, 6, 7), rows(RECREATED_A, 0)]

    found = [
        (source, batch["offset"].to_pylist())
        for source, batch in sort_by_partition(along_the_files)
    ]

    assert found == [(A, [0, 1]), (A, [2]), (RECREATED_A, [0]), (B, [5]), (B, [6, 7])]


def test_sorting_by_partition_does_not_change_the_stats():
    first = [rows(A, 0, 1), rows(B, 5), rows(A, 2)]

    check_unchanged(collect_stats(first), collect_stats(sort_by_partition(first)), 4)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([rows(A, 0, 1)], id="one less"),
        pytest.param([rows(A, 0, 1, 3)], id="another offset"),
        pytest.param([(A, batch_of([row(A, 0), row(A, 1), row(B, 2)]))], id="another value"),
        pytest.param([rows(A, 0, 1, 2), rows(B, 0)], id="another partition"),
    ],
)
def test_a_joined_file_with_different_records_is_an_error(after):
    with pytest.raises(LakeError, match="nothing was committed"):
        check_unchanged(collect_stats([rows(A, 0, 1, 2)]), collect_stats(after), 3)


@pytest.mark.parametrize("count", [2, 4])
def test_records_that_were_not_read_are_an_error(count):
    stats = collect_stats([rows(A, 0, 1), rows(B, 5)])

    with pytest.raises(LakeError, match=f"read 3 of {count} records; nothing was committed"):
        check_unchanged(stats, stats, count)


def test_offsets_that_do_not_increase_are_an_error():
    with pytest.raises(LakeError, match="do not increase"):
        collect_stats([rows(A, 2), rows(A, 1)])
