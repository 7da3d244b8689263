"""A table of the lake commits rows and txn versions together, on the snapshot it compared."""

import threading

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from resources.delta.table import CLOCK_APP_ID, LakeTable
from resources.delta.table_maintenance import MIN_SMALL_FILES, optimize
from schemas.errors.lake import LakeError, StalePlanError, TableDamagedError
from schemas.tables import CONTROL
from tests.support.disk_faults import fill, small_disk


def order(name="pause", at=1):
    return {"order": name, "scope": "us-east", "detail": "{}", "ordered_at_ms": at}


@pytest.fixture
def table(tmp_path):
    return LakeTable(tmp_path / "lake" / "control", CONTROL)


def again(table):
    return LakeTable(table.path, table.table)


def test_reading_a_missing_table_does_not_create_it(table):
    assert not table.exists()
    assert table.rows().num_rows == 0
    assert table.rows(["order"]).column_names == ["order"]
    assert not table.path.exists()


def test_rows_are_read_back_as_they_were_appended_with_nulls(table):
    table.append([order("pause"), order("resume", 2)])

    found = again(table).rows().sort_by("ordered_at_ms").to_pylist()
    assert [row["order"] for row in found] == ["pause", "resume"]
    assert found[0]["topic"] is None


def test_rows_and_txn_versions_are_one_commit(table):
    before = table.version

    assert table.append([order()], txn_versions={"done": 7}) == before + 1
    assert again(table).txn_version("done") == 7
    assert again(table).txn_version("other") is None


def test_a_txn_version_can_be_set_without_rows(table):
    table.append([], txn_versions={"done": 3})

    assert again(table).txn_version("done") == 3
    assert again(table).rows().num_rows == 0


def test_an_unexpected_txn_version_prevents_the_commit_and_nothing_is_written(table):
    table.append([order()], txn_versions={"done": 7})

    with pytest.raises(StalePlanError, match="done is at 7, not at 6"):
        table.append([order()], txn_versions={"done": 8}, expected={"done": 6})

    assert again(table).rows().num_rows == 1
    assert again(table).txn_version("done") == 7


def test_of_two_writers_that_compared_the_same_txn_version_one_fails(table):
    table.append([order()], txn_versions={"done": 1})
    other = again(table)
    other.refresh()
    table.check_txn_versions({"done": 1})
    other.check_txn_versions({"done": 1})

    table.commit([], txn_versions={"done": 2})
    with pytest.raises(StalePlanError):
        other.commit([], txn_versions={"done": 2})

    assert again(table).txn_version("done") == 2
    assert other.txn_version("done") == 2


def test_writers_of_different_txn_versions_do_not_conflict(table):
    table.append([order()])
    other = again(table)
    other.refresh()

    table.append([order()], txn_versions={"a": 1})
    other.append([order()], txn_versions={"b": 1})

    assert again(table).rows().num_rows == 3
    assert (again(table).txn_version("a"), again(table).txn_version("b")) == (1, 1)


def test_two_concurrent_writers_create_a_table_once(table):
    both = [again(table) for _ in range(2)]
    threads = [threading.Thread(target=each.append, args=([order()],)) for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert again(table).rows().num_rows == 2


def test_a_damaged_table_raises_a_one_line_error_with_its_name(table):
    table.append([order()])
    for file in table.path.glob("*.parquet"):
        file.write_bytes(b"torn")

    with pytest.raises(TableDamagedError, match="control cannot be read") as raised:
        again(table).rows()

    assert "\n" not in str(raised.value)


def test_optimize_merges_small_files_and_keeps_rows_and_txn_versions(table):
    for i in range(MIN_SMALL_FILES):
        table.append([order(at=i)], txn_versions={"done": i})

    assert optimize(table) == MIN_SMALL_FILES

    found = again(table)
    assert len(DeltaTable(str(table.path)).file_uris()) == 1
    assert sorted(found.rows()["ordered_at_ms"].to_pylist()) == list(range(MIN_SMALL_FILES))
    assert found.txn_version("done") == MIN_SMALL_FILES - 1
    assert optimize(table) == 0


def test_a_concurrent_optimize_neither_stops_a_writer_nor_loses_its_rows(table):
    for i in range(MIN_SMALL_FILES):
        table.append([order(at=i)])
    writer = again(table)
    writer.refresh()

    optimize(table)
    writer.append([order(at=99)], txn_versions={"done": 1})

    assert again(table).rows().num_rows == MIN_SMALL_FILES + 1


class Blind(LakeTable):
    """A table that never reads the commits of other writers."""

    def refresh(self):
        return self.version


def test_of_two_concurrent_merges_of_the_same_files_one_fails(table):
    for i in range(MIN_SMALL_FILES):
        table.append([order(at=i)])
    other = Blind(table.path, table.table)
    assert other.version == table.version
    optimize(table)

    with pytest.raises(StalePlanError):
        optimize(other)

    assert again(table).rows().num_rows == MIN_SMALL_FILES


def test_next_time_is_later_than_the_last_one_even_if_the_clock_is_set_back(table, monkeypatch):
    first = table.next_time_ms()
    assert not table.exists()
    table.append([order()], txn_versions={CLOCK_APP_ID: first})
    monkeypatch.setattr("resources.delta.table.time.time", lambda: 1_000.0)

    assert again(table).next_time_ms() == first + 1


@pytest.mark.parametrize("file", ["00000000000000000001.json", "00000000000000000000.json"])
def test_a_missing_or_truncated_commit_raises_an_error(table, file):
    for at in range(3):
        table.append([order(at=at)])
    commit = table.path / "_delta_log" / file
    whole = commit.read_bytes()

    commit.write_bytes(whole[:-20])
    with pytest.raises(TableDamagedError, match="control cannot be read"):
        again(table).refresh()

    commit.unlink()
    with pytest.raises(TableDamagedError, match="control cannot be read") as raised:
        again(table).refresh()
    assert "\n" not in str(raised.value)


def test_a_truncated_checkpoint_raises_an_error_and_the_commits_without_it_have_the_same_state(
    table,
):
    for at in range(3):
        table.append([order(at=at)], txn_versions={"done": at})
    table.delta.create_checkpoint()
    table.append([order(at=3)])
    log = table.path / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])

    with pytest.raises(TableDamagedError, match="control cannot be read"):
        again(table).refresh()

    checkpoint.unlink()
    (log / "_last_checkpoint").unlink()
    seen = again(table)
    assert sorted(seen.rows()["ordered_at_ms"].to_pylist()) == [0, 1, 2, 3]
    assert seen.txn_version("done") == 2


@pytest.mark.parametrize("content", [b"", b"\0torn", None], ids=["empty", "torn", "missing"])
def test_a_damaged_last_checkpoint_file_is_ignored(table, content):
    for at in range(3):
        table.append([order(at=at)])
    table.delta.create_checkpoint()
    last = table.path / "_delta_log" / "_last_checkpoint"
    last.unlink() if content is None else last.write_bytes(content)

    assert again(table).rows().num_rows == 3


def test_a_full_disk_raises_a_one_line_error_and_the_table_works_again_with_free_space(tmp_path):
    with small_disk(tmp_path / "disk", 2**18) as disk:
        table = LakeTable(disk / "control", CONTROL)
        table.append([order()])
        filler = fill(disk)

        with pytest.raises(LakeError, match=r"cannot be written: [^\n]*No space left") as rows:
            table.append([order(at=2)])
        with pytest.raises(LakeError, match=r"cannot be written: [^\n]*No space left") as commit:
            table.append([], txn_versions={"done": 1})

        filler.unlink()
        table.append([order(at=3)], txn_versions={"done": 2})
        assert again(table).rows()["ordered_at_ms"].to_pylist() == [3, 1]
    assert all("\x1b" not in str(raised.value) for raised in (rows, commit))


def test_refresh_returns_the_txn_version_of_the_newest_commit_of_any_writer(table):
    table.append([], txn_versions={"done": 1})
    assert (table.txn_version("done"), table.txn_version("new")) == (1, None)

    table.append([], txn_versions={"done": 2, "new": 5})
    assert (table.txn_version("done"), table.txn_version("new")) == (2, 5)

    again(table).append([], txn_versions={"done": 3})
    table.refresh()
    assert (table.txn_version("done"), table.txn_version("new")) == (3, 5)


def checkpoints(table):
    return sorted(
        int(f.name[:20]) for f in (table.path / "_delta_log").glob("*.checkpoint.parquet")
    )


def test_a_commit_writes_a_checkpoint_only_if_none_was_written_recently(table, monkeypatch):
    monkeypatch.setattr("resources.delta.table.CHECKPOINT_EVERY", 4)
    for at in range(1, 10):
        table.append([], txn_versions={"done": at})
        if at == 7:
            table.checkpoint(1)

    assert checkpoints(table) == [4, 7]
    assert again(table).txn_version("done") == 9


def test_a_commit_is_valid_even_if_its_checkpoint_cannot_be_written(table, monkeypatch, caplog):
    table.append([order()])
    monkeypatch.setattr("resources.delta.table.CHECKPOINT_EVERY", 2)

    def refuse(_):
        raise DeltaError("no room")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", refuse)
    table.append([order(at=2)], txn_versions={"done": 1})

    assert again(table).txn_version("done") == 1
    assert "can be written: no room" in caplog.text
