"""A vacuum deletes what no version of a table needs, at its time, and nothing else."""

import os
import time

import pytest

from resources.delta.table import LakeTable
from resources.delta.table_maintenance import ORPHAN_AGE_S, Vacuum
from resources.delta.transaction_log import LOG_FOLDER
from schemas.errors.lake import TableDamagedError
from schemas.tables import CONTROL

RETENTION_S = 600


class VacuumedTable:
    """A table whose files a test replaces."""

    def __init__(self, path):
        self.table = LakeTable(path, CONTROL)

    def again(self):
        return LakeTable(self.table.path, CONTROL)

    def add(self):
        """Append a row; return its file."""
        before = set(self.table.live)
        row = {"order": "pause", "scope": "us-east", "detail": "{}", "ordered_at_ms": 1}
        self.table.append([row])
        (path,) = self.table.live.keys() - before
        return self.table.path / path

    def replace(self, file):
        """Remove *file* from the table, like a rewrite of its rows."""
        self.table.refresh()
        self.table.commit([], [self.table.live[file.name]], txn_versions={})

    def add_replaced(self):
        file = self.add()
        self.replace(file)
        return file

    def make(self, name, age_s=0.0):
        """Make a file that the log does not name."""
        file = self.table.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x")
        return aged(file, age_s)

    def commits(self):
        return sorted((self.table.path / LOG_FOLDER).glob("*.json"))


def aged(file, age_s):
    at = time.time() - age_s
    os.utime(file, (at, at))
    return file


def after(monkeypatch, seconds):
    """Set the clock forward."""
    at = time.time() + seconds
    monkeypatch.setattr("resources.delta.table_maintenance.time.time", lambda: at)


@pytest.fixture
def made(tmp_path):
    return VacuumedTable(tmp_path / "control")


@pytest.mark.parametrize("age_s", [0, 2 * ORPHAN_AGE_S], ids=["new", "old"])
def test_a_replaced_file_is_deleted_after_the_retention_and_not_before(made, monkeypatch, age_s):
    file, vacuum = aged(made.add(), age_s), Vacuum(made.table)
    made.replace(file)

    after(monkeypatch, RETENTION_S - 60)
    assert (vacuum.run(RETENTION_S), file.exists()) == (0, True)
    after(monkeypatch, 120)
    assert (vacuum.run(RETENTION_S), file.exists()) == (1, False)


def test_a_file_that_the_log_does_not_name_is_deleted_after_a_day_and_not_before(made):
    made.add()
    kept = made.make("part-1.parquet", ORPHAN_AGE_S - 60)
    gone = [made.make(name, ORPHAN_AGE_S + 60) for name in ("part-2.parquet", "3.draft")]

    assert Vacuum(made.table).run(0) == 2

    assert kept.exists()
    assert not any(file.exists() for file in gone)


def test_live_files_the_log_and_folders_are_never_touched(made):
    aged(made.add(), 9 * ORPHAN_AGE_S)
    for name in ("slot=0/part-1.parquet", "_delta_log/note.txt"):
        aged(made.make(name, 9 * ORPHAN_AGE_S).parent, 9 * ORPHAN_AGE_S)
    made.table.checkpoint(1)

    def files():
        return {f: f.read_bytes() for f in made.table.path.rglob("*") if f.is_file()}

    before, vacuum = files(), Vacuum(made.table)

    assert [vacuum.run(0), vacuum.run(0), Vacuum(made.again()).run(0)] == [0, 0, 0]
    assert files() == before


def test_a_second_run_reads_only_the_commits_after_the_first(made):
    made.add()
    vacuum = Vacuum(made.table)
    vacuum.run(0)
    for commit in made.commits():
        commit.write_bytes(b"torn")  # so they cannot be read again
    file = made.add_replaced()

    assert (vacuum.run(0), file.exists()) == (1, False)
    with pytest.raises(TableDamagedError, match="is incomplete"):
        Vacuum(made.table).run(0)


def test_replaced_files_are_known_after_another_process_deleted_the_commits(made):
    made.add()
    vacuum = Vacuum(made.again())
    vacuum.run(0)
    before = made.add_replaced()
    made.add()
    made.table.checkpoint(1)
    first, *_ = made.commits()
    made.table.log.delete_expired_logs(keep=0)
    after = made.add_replaced()
    assert not first.exists()

    assert vacuum.run(0) == 2
    assert not before.exists()
    assert not after.exists()


def test_a_new_process_knows_replaced_files_from_the_checkpoint(made):
    before = made.add_replaced()
    made.table.checkpoint(1)
    after = made.add_replaced()
    made.table.log.delete_expired_logs(keep=2)

    assert Vacuum(made.again()).run(RETENTION_S) == 0
    assert Vacuum(made.again()).run(0) == 2
    assert not before.exists()
    assert not after.exists()


def test_the_last_commits_are_kept_and_no_checkpoint_is_written(made, monkeypatch):
    monkeypatch.setattr("resources.delta.table_maintenance.KEPT_COMMITS", 3)
    for at in range(8):
        made.add()
        if at == 3:
            made.table.checkpoint(1)

    Vacuum(made.table).run(0)

    assert made.commits()[0].name == f"{4:020}.json"
    checkpoints = (made.table.path / LOG_FOLDER).glob("*.checkpoint.parquet")
    assert [file.name[:20] for file in checkpoints] == [f"{4:020}"]
    assert made.again().rows().num_rows == 8
