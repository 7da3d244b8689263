"""A process writes the status of its role for other processes to read."""

import json
import os
import subprocess
import sys

import pytest

from resources.coordination import status_file as status_file_module
from resources.coordination.status_file import StatusFile

ROLE = "replay us-east->eu-west"
PARTITION_ERROR = {"topic": "orders", "partition": 3, "message": "too large"}


def test_a_posted_status_is_read_by_another_process(lake):
    StatusFile(lake).post(ROLE, "failed", "a record is too large", [PARTITION_ERROR])

    status = StatusFile(lake).read(ROLE)

    assert (status["state"], status["error"]) == ("failed", "a record is too large")
    assert status["troubles"] == [PARTITION_ERROR]
    assert status["pid"] == os.getpid()
    assert status["is_alive"]


def test_reading_creates_no_file(lake):
    assert StatusFile(lake).read(ROLE) is None
    assert not lake.exists()


def test_a_lake_that_it_creates_is_private_to_the_user(lake):
    StatusFile(lake).post(ROLE, "running", None, [])

    assert lake.stat().st_mode & 0o777 == 0o700


def test_an_unchanged_status_is_written_once_a_second(lake, monkeypatch):
    now_s = 1000.0
    monkeypatch.setattr(status_file_module.time, "time", lambda: now_s)
    status_file = StatusFile(lake)
    status_file.post(ROLE, "running", None, [])

    now_s += 0.9
    status_file.post(ROLE, "running", None, [])
    assert status_file.read(ROLE)["at_ms"] == 1_000_000

    now_s += 0.1
    status_file.post(ROLE, "running", None, [])
    assert status_file.read(ROLE)["at_ms"] == 1_001_000


def test_a_changed_status_is_written_at_once(lake):
    status_file = StatusFile(lake)
    status_file.post(ROLE, "running", None, [])
    status_file.post(ROLE, "paused", None, [])

    assert status_file.read(ROLE)["state"] == "paused"


def test_a_status_shows_whether_its_process_is_alive(lake):
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    StatusFile(lake).post(ROLE, "running", None, [])
    path = lake / "bulletins" / "replay_us-east__eu-west.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": int(dead.stdout)}))

    assert StatusFile(lake).read(ROLE)["is_alive"] is False


@pytest.mark.parametrize("text", ["", "{"])
def test_a_truncated_status_file_is_ignored(lake, text):
    (lake / "bulletins").mkdir(parents=True)
    (lake / "bulletins" / "stage_us-east.json").write_text(text)

    assert StatusFile(lake).read("stage us-east") is None


def test_a_lake_that_cannot_be_written_only_logs_a_warning(tmp_path):
    (tmp_path / "file").write_text("")

    StatusFile(tmp_path / "file").post(ROLE, "running", None, [])

    assert StatusFile(tmp_path / "file").read(ROLE) is None
