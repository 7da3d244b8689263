"""Read the files of a table from the newest rows on, also after files were merged."""

from itertools import pairwise

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.delta import table_maintenance
from resources.delta.arrow_schema import arrow_schema
from resources.delta.table import UNORDERED, LakeTable
from resources.delta.table_maintenance import optimize
from schemas.errors.lake import TableDamagedError
from schemas.tables import CONTROL, Table, read_columns
from tests.support.table_files import optimize_files, paths_by_age

COLUMNS = ("at long ! when it happened", "id long ! its number", "text string ! its text")
EVENTS = Table("events", "an event", read_columns(COLUMNS), ("id",), {}, ordered_by="at")


@pytest.fixture
def table(tmp_path):
    return LakeTable(tmp_path / "events", EVENTS)


def events(*times, text=""):
    return [{"at": at, "id": at, "text": text} for at in times]


def read(table, after=-1):
    """Return what `newest_first` yields: each order with the times of its rows."""
    table.refresh()
    return [
        (order, sorted(rows["at"].to_pylist())) for order, rows in table.newest_first(["at"], after)
    ]


def test_files_with_the_latest_rows_come_first_each_with_its_latest_value(table):
    table.append(events(1, 4, 2))
    table.append(events(5))
    table.append(events(6, 9))

    assert read(table) == [(9, [6, 9]), (5, [5]), (4, [1, 2, 4])]


def test_files_of_one_order_are_yielded_together(table):
    table.append(events(1))
    table.append(events(1, 3))
    table.append(events(3, 3))

    assert read(table) == [(3, [1, 3, 3, 3]), (1, [1])]


def test_only_the_requested_columns_are_read(table):
    table.append(events(7, text="seven"))

    ((_, rows),) = table.newest_first(["text", "at"])

    assert rows.to_pydict() == {"text": ["seven"], "at": [7]}


def test_a_table_without_rows_yields_nothing(table):
    table.append([], txn_versions={"done": 1})

    assert read(table) == []


def test_rows_that_are_not_in_order_come_before_all_others(table):
    table.append(events(5))
    table.append(events(1, 2), is_in_order=False)
    table.append(events(8))
    table.append(events(3), is_in_order=False)

    assert read(table) == [(UNORDERED, [1, 2, 3]), (8, [8]), (5, [5])]


def test_rows_that_another_program_appended_come_before_all_others(table):
    table.append(events(5))
    schema = arrow_schema(EVENTS)
    write_deltalake(str(table.path), pa.Table.from_pylist(events(2), schema), mode="append")
    table.append(events(8))

    assert read(table) == [(UNORDERED, [2]), (8, [8]), (5, [5])]


def test_files_that_another_program_merged_come_before_all_others(table):
    table.append(events(5))
    table.append(events(6))
    DeltaTable(str(table.path)).optimize.compact()
    table.append(events(8))

    assert read(table) == [(UNORDERED, [5, 6]), (8, [8])]


def test_all_files_of_a_table_without_an_order_come_together(tmp_path):
    table = LakeTable(tmp_path / "control", CONTROL)
    for at in (1, 2):
        row = {"order": "pause", "scope": "us-east", "detail": "{}", "ordered_at_ms": at}
        table.append([row])

    ((order, rows),) = table.newest_first(["ordered_at_ms"])

    assert (order, sorted(rows["ordered_at_ms"].to_pylist())) == (UNORDERED, [1, 2])


@pytest.mark.parametrize(
    ("after", "orders"),
    [
        pytest.param(-1, [UNORDERED, 8, 5, 0], id="all files"),
        pytest.param(0, [UNORDERED, 8, 5], id="a file of that order is left out"),
        pytest.param(6, [UNORDERED, 8], id="an order of no file"),
        pytest.param(8, [UNORDERED], id="a file of unknown order may have later rows"),
    ],
)
def test_files_up_to_an_order_are_left_out(table, after, orders):
    for at in (0, 5, 8):
        table.append(events(at))
    table.append(events(1), is_in_order=False)

    assert [order for order, _ in read(table, after)] == orders


def test_a_file_is_read_only_when_the_reader_gets_there(table):
    table.append(events(1))
    table.append(events(2))
    paths_by_age(table)[0].unlink()

    found = table.newest_first(["at"])
    order, _ = next(found)

    assert order == 2
    with pytest.raises(TableDamagedError, match="events cannot be read"):
        next(found)
    assert read(table, after=1) == [(2, [2])]


# Merged files


def test_a_merged_file_has_the_highest_order_of_its_files(table):
    for at in (1, 2, 3):
        table.append(events(at, at + 10))

    assert optimize_files(table, rank=3) == 3

    assert read(table) == [(13, [1, 2, 3, 11, 12, 13])]


def test_small_files_before_a_large_one_are_not_merged_with_those_after_it(table):
    table.append(events(1))
    table.append(events(*range(2, 500)))
    table.append(events(600))
    table.append(events(601))

    assert optimize_files(table, rank=3) == 2

    assert [order for order, _ in read(table)] == [601, 499, 1]


def test_the_rows_of_a_merged_file_keep_the_order_of_the_files(table):
    for at in range(8):
        table.append(events(at))
    optimize_files(table, rank=8)

    ((_, rows),) = table.newest_first(["at"])

    assert rows["at"].to_pylist() == list(range(8))


def test_small_files_are_merged_although_a_file_of_unknown_order_is_large(table, monkeypatch):
    # For example the merged files of a lake that an earlier version of deltamirror has written.
    table.append(events(*range(2000)), is_in_order=False)
    (large,) = paths_by_age(table)
    monkeypatch.setattr(table_maintenance, "SMALL_FILE_BYTES", large.stat().st_size)
    monkeypatch.setattr(table_maintenance, "MIN_SMALL_FILES", 4)
    for at in range(3000, 3004):
        table.append(events(at))

    assert optimize(table) == 4

    assert [order for order, _ in read(table)] == [UNORDERED, 3003]


APPEND = st.tuples(
    st.just("append"), st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(1, 400)
)
LATE_APPEND = st.tuples(st.just("append late"), st.integers(0, 20))
OPTIMIZE = st.tuples(st.just("optimize"), st.integers(0, 12))
STEPS = st.lists(st.one_of(APPEND, APPEND, OPTIMIZE, LATE_APPEND), max_size=14)


@given(STEPS, st.booleans())
@settings(max_examples=30)
def test_rows_stay_in_order_and_none_is_lost_however_files_are_merged(
    tmp_path_factory, steps, is_rising
):
    table, written, last = LakeTable(tmp_path_factory.mktemp("lake"), EVENTS), [], 0
    for step, *how in steps:
        if step == "optimize":
            optimize_files(table, *how)
            continue
        rows = []
        if step == "append":
            increments, repeated = how
            last += is_rising  # if not, an append may begin with the last value of the one before
            for increment in increments:
                last += increment
                rows += events(last, text="ab" * repeated)
        else:
            rows = events(*how)
        for row in rows:
            row["id"] = len(written)
            written.append((row["id"], row["at"]))
        table.append(rows, is_in_order=step == "append")

    table.refresh()
    found = [(order, rows.to_pylist()) for order, rows in table.newest_first(["id", "at"])]

    assert sorted((row["id"], row["at"]) for _, rows in found for row in rows) == written
    in_order = [(o, [row["at"] for row in rows]) for o, rows in reversed(found) if o != UNORDERED]
    assert all(order == max(times) for order, times in in_order)
    assert all(max(older) <= min(newer) for (_, older), (_, newer) in pairwise(in_order))
    if is_rising:
        oldest_first = [at for _, times in in_order for at in times]
        assert oldest_first == sorted(oldest_first)
