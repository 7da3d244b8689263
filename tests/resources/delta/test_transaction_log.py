"""The log is read and written commit by commit, with the same state as deltalake's."""

import json
import os
import threading
import time
from urllib.parse import unquote

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resources.delta import transaction_log as delta_log
from resources.delta.table import LakeTable
from resources.delta.transaction_log import (
    ABANDONED_AFTER_S,
    LOG_FOLDER,
    AddedFile,
    DeltaLog,
    LiveFile,
)
from schemas.errors.lake import LakeError, StalePlanError, TableDamagedError
from schemas.tables import CONTROL

STATS = json.dumps({"numRecords": 7})


def make(path):
    assert LakeTable(path, CONTROL).version == 0
    return path


@pytest.fixture
def path(tmp_path):
    return make(tmp_path / "control")


def opened(path):
    return DeltaLog(path, {})


def added(name):
    return AddedFile(LiveFile(name, 10), 1, STATS)


def commit(log, *names, txn_versions=None, removed=()):
    files = [added(name) for name in names]
    return log.commit(files, [log.files[name] for name in removed], txn_versions or {}, {})


def by_deltalake(path, *names, txn_versions=None):
    """Commit with deltalake, as another program does."""
    delta = DeltaTable(str(path))
    delta.create_write_transaction(
        [AddAction(name, 10, {}, 1, True, STATS) for name in names],
        mode="append",
        schema=delta.schema(),
        commit_properties=CommitProperties(
            app_transactions=[Transaction(name, at) for name, at in (txn_versions or {}).items()]
        ),
    )


def commits(path):
    return sorted(file.name for file in (path / LOG_FOLDER).glob("*.json"))


def test_deltalake_reads_our_commits(path):
    log = opened(path)

    version = log.commit([added("a.parquet"), added("b.parquet")], [], {"m": 5}, {"why": "x"})

    delta = DeltaTable(str(path))
    adds = delta.get_add_actions(flatten=True)
    assert (delta.version(), delta.transaction_version("m")) == (version, 5)
    assert sorted(adds.column("path").to_pylist()) == ["a.parquet", "b.parquet"]
    assert adds.column("num_records").to_pylist() == [7, 7]
    assert adds.column("size_bytes").to_pylist() == [10, 10]
    assert delta.history(1)[0]["why"] == "x"


def test_paths_of_files_are_read_as_they_were_committed(path):
    log, odd = opened(path), added("of=3/part 1%.parquet")

    log.commit([odd], [], {}, {})

    adds = DeltaTable(str(path)).get_add_actions(flatten=True)
    assert [unquote(each) for each in adds.column("path").to_pylist()] == [odd.file.path]
    assert opened(path).files == log.files == {odd.file.path: odd.file}
    log.commit([], [odd.file], {}, {})
    assert DeltaTable(str(path)).file_uris() == []


def test_refresh_reads_the_commits_of_other_writers(path):
    log = opened(path)
    by_deltalake(path, "a.parquet", txn_versions={"m": 1})
    by_deltalake(path, "b.parquet", txn_versions={"n": 2})

    assert log.refresh() == 2
    assert set(log.files) == {"a.parquet", "b.parquet"}
    assert [log.txn_version(name) for name in ("m", "n", "o")] == [1, 2, None]


def test_a_concurrent_commit_without_conflict_does_not_stop_a_commit(path):
    log = opened(path)
    by_deltalake(path, "a.parquet", txn_versions={"m": 1})

    assert commit(log, "b.parquet", txn_versions={"n": 1}) == 2
    assert set(log.files) == {"a.parquet", "b.parquet"}
    assert (log.txn_version("m"), log.txn_version("n")) == (1, 1)


def test_a_concurrent_commit_of_the_same_txn_version_stops_a_commit(path):
    log = opened(path)
    by_deltalake(path, "a.parquet", txn_versions={"m": 1})

    with pytest.raises(StalePlanError, match="version 1 has changed m"):
        commit(log, "b.parquet", txn_versions={"m": 1})

    assert log.version == 1
    assert len(commits(path)) == 2
    assert set(DeltaTable(str(path)).get_add_actions().column("path").to_pylist()) == {"a.parquet"}


def test_a_concurrent_removal_of_the_same_file_stops_a_commit(path):
    log = opened(path)
    commit(log, "a.parquet")
    other = opened(path)
    commit(other, "c.parquet", removed=["a.parquet"])

    with pytest.raises(StalePlanError, match=r"has changed a\.parquet"):
        commit(log, "b.parquet", removed=["a.parquet"])

    assert set(opened(path).files) == {"c.parquet"}


def test_a_rejected_commit_leaves_no_file_in_the_log(path):
    log = opened(path)
    by_deltalake(path, txn_versions={"m": 1})
    with pytest.raises(StalePlanError):
        commit(log, txn_versions={"m": 1})

    assert not list((path / LOG_FOLDER).glob("*.tmp"))


def test_every_commit_of_many_concurrent_writers_is_in_the_log_once(path):
    each, writers = 40, 4

    def write(number):
        log = opened(path)
        for i in range(each):
            commit(log, f"{number}-{i}.parquet", txn_versions={f"m{number}": i})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    log = opened(path)
    assert log.version == each * writers
    assert set(log.files) == {f"{n}-{i}.parquet" for n in range(writers) for i in range(each)}
    assert {log.txn_version(f"m{number}") for number in range(writers)} == {each - 1}


def test_concurrent_writers_of_a_txn_version_set_each_value_once(path):
    taken = []

    def count():
        log = opened(path)
        for _ in range(40):
            now = log.txn_version("m") or 0
            try:
                commit(log, txn_versions={"m": now + 1})
            except StalePlanError:
                continue
            taken.append(now + 1)

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(taken) == list(range(1, len(taken) + 1))
    assert DeltaTable(str(path)).transaction_version("m") == len(taken)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ours", "other's", "deltalake", "remove", "checkpoint", "clean", "refresh"]
        ),
        st.integers(0, 3),
    ),
    max_size=14,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(_STEPS)
def test_the_log_and_deltalake_agree_after_any_sequence_of_commits(tmp_path_factory, steps):
    path = make(tmp_path_factory.mktemp("lake") / "control")
    log, other = opened(path), opened(path)
    for number, (step, which) in enumerate(steps):
        name, txn_versions = f"{number}.parquet", {f"m{which}": number}
        if step == "ours":
            log.refresh()
            commit(log, name, txn_versions=txn_versions)
        elif step == "other's":
            other.refresh()
            commit(other, name, txn_versions=txn_versions)
        elif step == "deltalake":
            by_deltalake(path, name, txn_versions=txn_versions)
        elif step == "remove" and log.refresh() and log.files:
            commit(log, removed=[min(log.files)])
        elif step == "checkpoint":
            DeltaTable(str(path)).create_checkpoint()
        elif step == "clean":
            other.refresh()
            other.delete_expired_logs(which)
        elif step == "refresh":
            log.refresh()

    delta = DeltaTable(str(path))
    for seen in (log, other, opened(path)):
        assert seen.refresh() == delta.version()
        assert set(seen.files) == set(delta.get_add_actions().column("path").to_pylist())
        for which in range(4):
            assert seen.txn_version(f"m{which}") == delta.transaction_version(f"m{which}")


def test_the_deltalake_table_has_the_version_last_read(path):
    log = opened(path)
    assert log.delta.version() == 0
    commit(log, "a.parquet")
    by_deltalake(path, "b.parquet")

    assert (log.version, log.delta.version()) == (1, 1)
    log.refresh()
    assert (log.version, log.delta.version()) == (2, 2)


def test_a_txn_version_is_that_of_the_snapshot_and_not_of_later_commits(path):
    log = opened(path)
    commit(log, txn_versions={"m": 1})
    by_deltalake(path, txn_versions={"m": 2, "new": 5})

    assert (log.txn_version("m"), log.txn_version("new"), log.version) == (1, None, 1)
    with pytest.raises(StalePlanError):
        commit(log, txn_versions={"new": 1})
    assert (log.txn_version("m"), log.txn_version("new"), log.version) == (2, 5, 2)


@pytest.mark.parametrize("torn", [b"\0", None], ids=["torn", "missing"])
def test_txn_versions_are_read_without_the_last_checkpoint_file(path, torn):
    log = opened(path)
    commit(log, txn_versions={"m": 1})
    DeltaTable(str(path)).create_checkpoint()
    commit(log, txn_versions={"n": 2})
    last_checkpoint = path / LOG_FOLDER / "_last_checkpoint"
    last_checkpoint.unlink() if torn is None else last_checkpoint.write_bytes(torn)

    assert [opened(path).txn_version(name) for name in ("m", "n", "o")] == [1, 2, None]
    (path / LOG_FOLDER / f"{0:020}.json").unlink()
    assert [opened(path).txn_version(name) for name in ("m", "n", "o")] == [1, 2, None]


def test_all_txn_versions_are_read_at_once(path, monkeypatch):
    log = opened(path)
    commit(log, txn_versions={f"m{i}": i for i in range(500)})
    DeltaTable(str(path)).create_checkpoint()
    commit(log, txn_versions={"m7": 70})

    def refuse(*_):
        raise AssertionError("one at a time is slow")

    monkeypatch.setattr(DeltaTable, "transaction_version", refuse)
    seen = opened(path)
    assert [seen.txn_version(f"m{i}") for i in (0, 7, 499, 500)] == [0, 70, 499, None]


def test_deleting_logs_before_a_checkpoint_keeps_the_state(path):
    log = opened(path)
    for i in range(9):
        commit(log, f"{i}.parquet", txn_versions={"m": i})
        if log.version in {3, 6, 8}:
            DeltaTable(str(path)).create_checkpoint()
    behind = opened(path)
    asleep = DeltaLog(path, {})
    asleep.version = 1

    assert log.delete_expired_logs(keep=2) > 0

    assert commits(path)[0] == f"{6:020}.json"
    for seen in (opened(path), behind, asleep):
        assert seen.refresh() == 9
        assert len(seen.files) == 9
        assert seen.txn_version("m") == 8


def test_no_log_is_deleted_without_an_old_enough_checkpoint(path):
    log = opened(path)
    for i in range(4):
        commit(log, f"{i}.parquet")
    DeltaTable(str(path)).create_checkpoint()
    commit(log, "4.parquet")

    assert log.delete_expired_logs(keep=2) == 0
    assert len(commits(path)) == 6


def test_old_drafts_of_commits_are_deleted(path):
    log = opened(path)
    old, new = (path / LOG_FOLDER / f"_commit_{name}.json.tmp" for name in ("old", "new"))
    for file in (old, new):
        file.write_bytes(b"{}")
    long_ago = time.time() - ABANDONED_AFTER_S - 1
    os.utime(old, (long_ago, long_ago))

    assert log.delete_expired_logs(keep=10) == 1
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize("last", [b"\0torn", None], ids=["torn", "missing"])
def test_a_checkpoint_is_due_after_a_number_of_commits(path, last):
    log = opened(path)
    for _ in range(3):
        commit(log)
    assert delta_log.is_checkpoint_due(path, 3)
    assert not delta_log.is_checkpoint_due(path, 4)

    DeltaTable(str(path)).create_checkpoint()
    commit(log)
    assert delta_log.is_checkpoint_due(path, 1)
    assert not delta_log.is_checkpoint_due(path, 2)

    last_checkpoint = path / LOG_FOLDER / "_last_checkpoint"
    last_checkpoint.unlink() if last is None else last_checkpoint.write_bytes(last)
    assert delta_log.is_checkpoint_due(path, 4)


def test_commits_after_a_version_are_read_up_to_the_first_that_does_not_exist(path):
    log = opened(path)
    for letter in "abc":
        log.commit([], [], {}, {"letter": letter})

    found = list(delta_log.read_commits(path, 1))

    assert [(v, actions[0]["commitInfo"]["letter"]) for v, actions in found] == [(2, "b"), (3, "c")]
    assert list(delta_log.read_commits(path, 3)) == []


def test_a_commit_is_missing_if_a_later_one_exists(path):
    log = opened(path)
    for _ in range(3):
        log.commit([], [], {}, {})
    assert not any(delta_log.is_commit_missing(path, version) for version in range(1, 9))

    for version in (0, 1, 2):
        (path / LOG_FOLDER / f"{version:020}.json").unlink()

    assert delta_log.is_commit_missing(path, 2)
    assert not delta_log.is_commit_missing(path, 4)


def test_expired_commits_that_are_still_needed_are_kept(path):
    log = opened(path)
    for _ in range(6):
        log.commit([], [], {}, {})
        DeltaTable(str(path)).create_checkpoint()

    log.delete_expired_logs(keep=1, needed_after=3)

    assert [v for v, _ in delta_log.read_commits(path, 3)] == [4, 5, 6]
    assert not (path / LOG_FOLDER / f"{2:020}.json").exists()


def test_an_empty_commit_file_is_a_commit_without_actions(path):
    log = opened(path)
    (path / LOG_FOLDER / f"{1:020}.json").touch()

    assert log.refresh() == 1
    assert commit(log, "a.parquet") == 2
    assert DeltaTable(str(path)).version() == 2


def test_an_incomplete_commit_raises_an_error_with_its_version(path):
    log = opened(path)
    (path / LOG_FOLDER / f"{1:020}.json").write_bytes(b'{"commitInfo":{}}\n{"add":{"pa')

    with pytest.raises(TableDamagedError, match="version 1 is incomplete"):
        log.refresh()


def test_missing_commits_that_were_read_before_raise_an_error_with_both_versions(path):
    log = opened(path)
    for _ in range(3):
        commit(log)
    for version in (2, 3):
        (path / LOG_FOLDER / f"{version:020}.json").unlink()

    with pytest.raises(TableDamagedError, match="ends at version 1, but version 3 was read"):
        log.refresh()


def test_a_later_protocol_version_raises_an_error_with_the_versions(path):
    log = opened(path)
    raised = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
    (path / LOG_FOLDER / f"{1:020}.json").write_text(json.dumps(raised) + "\n")

    with pytest.raises(LakeError, match="reader version 1 and writer version 4"):
        log.refresh()


def test_table_properties_of_another_program_do_not_stop_commits(path):
    log = opened(path)
    DeltaTable(str(path)).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 9 days"}
    )

    assert log.refresh() == 1
    assert commit(log, "a.parquet") == 2
    assert set(opened(path).files) == {"a.parquet"}


def test_refresh_and_commit_do_not_use_deltalake(path, monkeypatch):
    log, other = opened(path), opened(path)
    log.txn_version("m")
    monkeypatch.setattr(delta_log, "DeltaTable", None)

    for i in range(3):
        commit(log, f"{i}.parquet", txn_versions={"m": i})
        assert other.refresh() == log.version

    assert set(other.files) == {"0.parquet", "1.parquet", "2.parquet"}
