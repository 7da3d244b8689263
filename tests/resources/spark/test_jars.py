import hashlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from demo.kafka.jars import kafka_home
from resources.spark import jars as downloads
from resources.spark.jars import JarSet, cache_root, delta_jars, fetch, repository
from schemas.errors.environment import DownloadFailedError

SMALL = JarSet("small-1.0", (("org.example", "top", "1.0"),))
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version>{more}
</project>"""
NEEDS = """<dependencies><dependency>
<groupId>org.example</groupId><artifactId>bottom</artifactId><version>1.0</version>
</dependency></dependencies>"""


def publish(root, name, more=""):
    """Write an artifact to the Maven repository at *root*, as for a release."""
    folder = root / "org" / "example" / name / "1.0"
    folder.mkdir(parents=True)
    for file, content in ((f"{name}-1.0.pom", POM.format(name=name, more=more)), (".jar", name)):
        path = folder / (f"{name}-1.0.jar" if file == ".jar" else file)
        path.write_text(content)
        digest = hashlib.sha1(content.encode()).hexdigest()
        path.with_name(path.name + ".sha1").write_text(digest)


@pytest.fixture
def maven(tmp_path, monkeypatch):
    """A Maven repository on this machine, an empty cache, and a home without settings."""
    root = tmp_path / "maven"
    root.mkdir()
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", root.as_uri())
    monkeypatch.setenv("DELTAMIRROR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(downloads, "_PAUSE_SECONDS", 0.0)
    return root


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_jars_are_fetched_with_their_dependencies_and_no_other_file_stays(maven, tmp_path):
    publish(maven, "bottom")
    publish(maven, "top", NEEDS)

    folder = fetch(SMALL)

    assert folder == tmp_path / "cache" / "small-1.0"
    assert names(folder) == ["bottom-1.0.jar", "top-1.0.jar"]
    assert (folder / "top-1.0.jar").read_text() == "top"
    assert names(folder.parent) == [".small-1.0.lock", "small-1.0"]


def test_an_existing_folder_is_not_fetched_again(maven, tmp_path, monkeypatch):
    (tmp_path / "cache" / "small-1.0").mkdir(parents=True)
    monkeypatch.setattr(downloads, "_run_ivy", None)

    assert fetch(SMALL) == tmp_path / "cache" / "small-1.0"


def test_two_concurrent_fetches_download_once(maven, monkeypatch):
    fetched = []

    def run_ivy(work, name):
        fetched.append(work)
        (work / "jars").mkdir()

    monkeypatch.setattr(downloads, "_run_ivy", run_ivy)

    with ThreadPoolExecutor(4) as askers:
        folders = set(askers.map(fetch, [SMALL] * 4))

    assert len(folders) == 1
    assert len(fetched) == 1


def test_a_failed_attempt_is_retried(maven, monkeypatch):
    answers = ["connection reset", "connection reset", None]

    def run_ivy(work, name):
        (work / "jars").mkdir(exist_ok=True)
        return answers.pop(0)

    monkeypatch.setattr(downloads, "_run_ivy", run_ivy)

    assert fetch(SMALL).is_dir()
    assert answers == []


def test_a_missing_artifact_raises_an_error_with_its_name_and_leaves_no_folder(maven, tmp_path):
    publish(maven, "top", NEEDS)

    with pytest.raises(DownloadFailedError, match=r"small-1\.0 could not be fetched") as error:
        fetch(SMALL)

    assert "bottom" in str(error.value)
    assert "\n" not in str(error.value)
    assert "make setup" in error.value.hint
    assert not (tmp_path / "cache" / "small-1.0").exists()


def test_errors_do_not_contain_the_password_of_the_repository(maven, monkeypatch):
    # Port 1 of this machine refuses connections at once.
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "https://me:secret@127.0.0.1:1/releases")

    with pytest.raises(DownloadFailedError) as error:
        fetch(SMALL)

    assert "from https://127.0.0.1:1/releases/: Server access error" in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("mirror_of", "used"),
    [
        pytest.param("central", True, id="of Maven Central"),
        pytest.param("*", True, id="of everything"),
        pytest.param("external:*", True, id="of everything that is not local"),
        pytest.param("*,!central", False, id="of everything but Maven Central"),
        pytest.param("snapshots", False, id="of something else"),
    ],
)
def test_a_mirror_in_maven_s_settings_is_used_when_it_mirrors_central(
    maven, tmp_path, monkeypatch, mirror_of, used
):
    monkeypatch.delenv("DEFAULT_ARTIFACT_REPOSITORY")
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors><mirror>'
        f"<mirrorOf>{mirror_of}</mirrorOf><url>https://mirror.example/maven2</url>"
        "</mirror></mirrors></settings>"
    )

    expected = "https://mirror.example/maven2/" if used else downloads.MAVEN_CENTRAL
    assert repository() == expected


def test_the_environment_variable_overrides_maven_s_settings(maven, monkeypatch):
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "https://company.example/maven")

    assert repository() == "https://company.example/maven/"


def test_the_environment_variables_set_the_cache_folder(monkeypatch):
    monkeypatch.delenv("DELTAMIRROR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert cache_root() == Path("/var/cache/me/deltamirror")

    monkeypatch.setenv("DELTAMIRROR_CACHE", "/srv/jars")
    assert cache_root() == Path("/srv/jars")


def test_the_command_prints_one_line_if_nothing_can_be_fetched(maven):
    done = subprocess.run(
        [sys.executable, "-m", "resources.spark.jars"], capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert re.match(r"(kafka|delta)-[\d.]+ could not be fetched from file:", last)


@pytest.mark.kafka
def test_the_jars_contain_a_broker_mirrormaker_and_delta():
    kafka = [path.name for path in kafka_home().iterdir()]
    delta = [path.name for path in delta_jars()]

    assert {"kafka_2.13-4.3.0.jar", "connect-mirror-4.3.0.jar", "kafka-tools-4.3.0.jar"} <= {*kafka}
    assert {"delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"} <= {*delta}
