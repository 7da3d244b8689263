"""A lease allows one process per role, and a dead process holds none."""

import os
import subprocess
import sys

import pytest

from resources.coordination.lease import Lease
from schemas.errors.lake import LakeError, LeaseHeldError
from tests.support.brokers import cli_environment

HOLD = """
import sys, subprocess
from pathlib import Path
from resources.coordination.lease import Lease
Lease(Path(sys.argv[1]), "stage us-east").acquire()
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
sys.stdin.read()
"""


def lease(tmp_path, role="stage us-east"):
    return Lease(tmp_path, role)


def test_a_second_process_gets_an_error_with_the_holders_pid(tmp_path):
    with lease(tmp_path) as held:
        assert held.is_held
        with pytest.raises(LeaseHeldError, match=rf"stage us-east .*\(process {os.getpid()}\)"):
            lease(tmp_path).acquire()


def test_a_released_lease_can_be_taken(tmp_path):
    first, second = lease(tmp_path), lease(tmp_path)
    first.acquire()

    with pytest.raises(LeaseHeldError):
        second.acquire()
    first.release()
    first.release()

    assert not first.is_held
    with second:
        assert second.is_held


def test_leases_of_different_roles_do_not_conflict(tmp_path):
    with lease(tmp_path, "replay a->b"), lease(tmp_path, "replay a->c"), lease(tmp_path):
        pass


def test_a_lease_ends_with_its_process_while_its_children_still_run(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=cli_environment(),
        text=True,
    )
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(LeaseHeldError):
            lease(tmp_path).acquire()

        holder.kill()
        holder.wait(10)

        with lease(tmp_path):
            pass
    finally:
        os.kill(child, 9)
        holder.stdin.close()
        holder.stdout.close()


def test_a_lake_that_cannot_be_written_raises_a_lake_error(tmp_path):
    (tmp_path / "leases").write_text("a file where a folder has to be")

    with pytest.raises(LakeError, match="cannot be created"):
        lease(tmp_path).acquire()
