"""What a process said about itself is there for another process to read."""

import json
import os
import subprocess
import sys

import pytest

from resources.coordination import status_file as bulletin
from resources.coordination.status_file import StatusFile

DUTY = "replay us-east->eu-west"
TROUBLE = {"topic": "orders", "partition": 3, "message": "too large"}


def test_a_posted_status_is_read_by_another_process(lake):
    StatusFile(lake).post(DUTY, "failed", "a record is too large", [TROUBLE])

    said = StatusFile(lake).read(DUTY)

    assert (said["state"], said["error"]) == ("failed", "a record is too large")
    assert said["troubles"] == [TROUBLE]
    assert said["pid"] == os.getpid()
    assert said["is_alive"]


def test_reading_creates_no_file(lake):
    assert StatusFile(lake).read(DUTY) is None
    assert not lake.exists()


def test_a_lake_that_it_creates_is_private_to_the_user(lake):
    StatusFile(lake).post(DUTY, "running", None, [])

    assert lake.stat().st_mode & 0o777 == 0o700


def test_an_unchanged_status_is_written_once_a_second(lake, monkeypatch):
    now_s = 1000.0
    monkeypatch.setattr(bulletin.time, "time", lambda: now_s)
    board = StatusFile(lake)
    board.post(DUTY, "running", None, [])

    now_s += 0.9
    board.post(DUTY, "running", None, [])
    assert board.read(DUTY)["at_ms"] == 1_000_000

    now_s += 0.1
    board.post(DUTY, "running", None, [])
    assert board.read(DUTY)["at_ms"] == 1_001_000


def test_a_changed_status_is_written_at_once(lake):
    board = StatusFile(lake)
    board.post(DUTY, "running", None, [])
    board.post(DUTY, "paused", None, [])

    assert board.read(DUTY)["state"] == "paused"


def test_a_status_shows_whether_its_process_is_alive(lake):
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    StatusFile(lake).post(DUTY, "running", None, [])
    path = lake / "bulletins" / "replay_us-east__eu-west.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": int(dead.stdout)}))

    assert StatusFile(lake).read(DUTY)["is_alive"] is False


@pytest.mark.parametrize("text", ["", "{"])
def test_a_truncated_status_file_is_ignored(lake, text):
    (lake / "bulletins").mkdir(parents=True)
    (lake / "bulletins" / "stage_us-east.json").write_text(text)

    assert StatusFile(lake).read("stage us-east") is None


def test_a_lake_that_cannot_be_written_only_logs_a_warning(tmp_path):
    (tmp_path / "file").write_text("")

    StatusFile(tmp_path / "file").post(DUTY, "running", None, [])

    assert StatusFile(tmp_path / "file").read(DUTY) is None
