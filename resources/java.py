"""Find the Java executable for Spark, Kafka's brokers and the download of jars."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from schemas.errors.environment import JavaMissingError

MIN_VERSION = 17
_ANSWER_SECONDS = 30


@functools.cache
def java() -> Path:
    """Return the `java` of JAVA_HOME, else that of PATH. Raises JavaMissingError below Java 17."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise JavaMissingError("PATH has no java, and JAVA_HOME is not set")
    version = java_version(Path(found))
    if int(version.split(".")[0]) < MIN_VERSION:
        raise JavaMissingError(f"{found} is version {version}")
    return Path(found)


def java_version(executable: Path) -> str:
    """Return what *executable* prints: `17.0.15`, or `1.8.0_402` for 8. Raises JavaMissingError."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissingError(f"{executable} cannot be run ({error})") from error
    # With JAVA_TOOL_OPTIONS set, a JVM prints another line before its version.
    match = re.search(r'version "([\d._]+)', answer.stderr)
    if match is None:
        raise JavaMissingError(f"{executable} does not print its version")
    return match[1]


if __name__ == "__main__":
    # `make setup` runs this before it downloads anything, with the system's Python.
    try:
        java()
    except JavaMissingError as error:
        raise SystemExit(f"{error}. {error.hint}") from None
