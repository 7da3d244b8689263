import pytest

from resources.java import java, java_version
from schemas.errors.environment import JavaMissingError


@pytest.fixture(autouse=True)
def _asked_anew():
    java.cache_clear()
    yield
    java.cache_clear()


def pretend(home, version):
    """Write a java to *home* that prints *version*."""
    executable = home / "bin" / "java"
    executable.parent.mkdir()
    script = f"""#!/bin/sh
echo 'Picked up JAVA_TOOL_OPTIONS: -Dsome="version 1"' >&2
echo 'openjdk version "{version}" 2025-04-15' >&2
"""
    executable.write_text(script)
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25-ea"])
def test_java_home_is_used_when_it_is_new_enough(tmp_path, monkeypatch, version):
    executable = pretend(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java() == executable


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.1"])
def test_an_older_java_is_refused_with_its_version(tmp_path, monkeypatch, version):
    pretend(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaMissingError, match=version) as error:
        java()

    assert "version 17 or newer" in error.value.hint


def test_a_missing_java_is_an_error(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(JavaMissingError, match="PATH has no java"):
        java()


def test_a_java_home_without_java_is_an_error(tmp_path):
    with pytest.raises(JavaMissingError, match="cannot be run"):
        java_version(tmp_path / "bin" / "java")
