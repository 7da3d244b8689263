"""Spark's JVM loads its classes from an archive, which `make setup` writes once."""

import os
import shutil
import subprocess
import sys

import pytest

from resources.spark.jars import DELTA, fetch
from tests.support.brokers import cli_environment

# Exits with 0 if Spark's JVM has mapped a file of this name.
IS_MAPPED = """
import sys
from pathlib import Path
from resources.spark.session import spark_context

jvm = spark_context(1)._gateway.proc.pid
sys.exit(sys.argv[1] not in Path(f"/proc/{jvm}/maps").read_text())
"""

pytestmark = [
    pytest.mark.story,
    pytest.mark.skipif(sys.platform != "linux", reason="what a process has mapped is in /proc"),
]


@pytest.fixture(scope="module")
def archived(tmp_path_factory):
    """A cache with Delta's jars and the archive, as after `make setup`. Its path has a space."""
    folder = tmp_path_factory.mktemp("made") / "a cache"
    folder.mkdir()
    (folder / DELTA.name).symlink_to(fetch(DELTA))
    done = python(folder, "-m", "resources.spark.session")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def cache(archived, tmp_path):
    """A copy of `archived` that a test may change."""
    return shutil.copytree(archived, tmp_path / "a cache", symlinks=True)


def archive_of(cache):
    (archive,) = cache.glob("*.jsa")
    return archive


def python(cache, *arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        env=cli_environment({"DELTAMIRROR_CACHE": str(cache)}),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_spark_loads_its_classes_from_the_archive(archived):
    assert python(archived, "-c", IS_MAPPED, archive_of(archived).name).returncode == 0


def test_classes_are_archived_once(archived):
    made = archive_of(archived).stat()

    assert python(archived, "-m", "resources.spark.session").returncode == 0
    assert archive_of(archived).stat() == made


def test_an_archive_that_is_older_than_the_jars_is_not_used(cache):
    os.utime(archive_of(cache), (0, 0))

    assert python(cache, "-c", IS_MAPPED, archive_of(cache).name).returncode == 1


def test_spark_starts_without_output_if_java_cannot_use_the_archive(cache):
    archive_of(cache).chmod(0o644)
    archive_of(cache).write_bytes(b"of no use")

    done = python(cache, "-c", IS_MAPPED, "libjvm.so")

    assert (done.returncode, done.stdout) == (0, "")
    assert "archive" not in done.stderr
