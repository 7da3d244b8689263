"""Download jars into a cache outside the repository; as a module it downloads Delta's.

Apache Ivy downloads them. PySpark includes Ivy, so a new machine needs only Java. A folder gets its
final name only when it is complete, so a folder that exists needs no further check.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from resources.java import java
from schemas.errors.base import DeltamirrorError
from schemas.errors.environment import DownloadFailedError

DELTA_VERSION = "4.4.0"
MAVEN_CENTRAL = "https://repo1.maven.org/maven2/"

_ATTEMPTS = 3
_ATTEMPT_SECONDS = 900
_PAUSE_SECONDS = 3.0
_REPORT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class JarSet:
    """A folder of the cache: its name, and its artifacts as (organisation, name, version)."""

    name: str
    artifacts: tuple[tuple[str, str, str], ...]


DELTA = JarSet(f"delta-{DELTA_VERSION}", (("io.delta", "delta-spark_4.2_2.13", DELTA_VERSION),))


def delta_jars() -> list[Path]:
    """Return Delta's jars for Spark, sorted by name; download them if necessary.

    Raises DownloadFailedError, JavaMissingError.
    """
    return sorted(fetch(DELTA).glob("*.jar"))


def cache_root() -> Path:
    """Return the folder of downloads: DELTAMIRROR_CACHE, or `deltamirror` in the user's cache."""
    if chosen := os.environ.get("DELTAMIRROR_CACHE"):
        return Path(chosen)
    user_cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(user_cache) if user_cache else Path.home() / ".cache") / "deltamirror"


def fetch(jars: JarSet) -> Path:
    """Return the folder of *jars*, downloaded once for all processes. Raises as `delta_jars`."""
    folder = cache_root() / jars.name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{jars.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch_into(folder, jars)
    return folder


def repository() -> str:
    """Return the URL of the Maven repository, ending in a slash.

    It is Spark's variable DEFAULT_ARTIFACT_REPOSITORY if set, else the mirror of Maven Central in
    ~/.m2/settings.xml, else Maven Central.
    """
    chosen = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY") or _mirror() or MAVEN_CENTRAL
    return chosen.rstrip("/") + "/"


def _mirror() -> str | None:
    settings = Path.home() / ".m2" / "settings.xml"
    if not settings.is_file():
        return None
    try:
        mirrors = ElementTree.parse(settings).getroot().iterfind("{*}mirrors/{*}mirror")
    except ElementTree.ParseError:
        return None  # Maven reports the invalid file; Maven Central still works.
    for mirror in mirrors:
        mirrored = {name.strip() for name in (mirror.findtext("{*}mirrorOf") or "").split(",")}
        if mirrored & {"central", "*", "external:*"} and "!central" not in mirrored:
            return mirror.findtext("{*}url")
    return None


def _fetch_into(folder: Path, jars: JarSet) -> None:
    url = _redact_urls(repository())
    _print_line(f"fetching {jars.name} from {url}")
    # Kept between attempts and after a failure: the next attempt downloads only missing files.
    ivy_cache = folder.with_name(f".{jars.name}.ivy")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{jars.name}.") as temporary:
        work = Path(temporary)
        _write_settings(work, ivy_cache)
        _write_module(work, jars)
        for attempt in range(1, _ATTEMPTS + 1):
            problem = _run_ivy(work, jars.name)
            if problem is None:
                break
            _print_line(f"{jars.name}: attempt {attempt} of {_ATTEMPTS} failed: {problem}")
            if attempt == _ATTEMPTS:
                raise DownloadFailedError(jars.name, repository=url, reason=problem)
            time.sleep(_PAUSE_SECONDS)
        (work / "jars").rename(folder)
    shutil.rmtree(ivy_cache, ignore_errors=True)
    _print_line(f"{len(list(folder.glob('*.jar')))} jars in {folder}")


def _write_settings(work: Path, ivy_cache: Path) -> None:
    root = ElementTree.Element("ivysettings")
    ElementTree.SubElement(root, "settings", defaultResolver="maven")
    ElementTree.SubElement(root, "caches", defaultCacheDir=str(ivy_cache))
    # `ibiblio` is Ivy's name for a resolver of the Maven 2 layout.
    maven = {"name": "maven", "m2compatible": "true", "root": repository()}
    ElementTree.SubElement(ElementTree.SubElement(root, "resolvers"), "ibiblio", maven)
    ElementTree.ElementTree(root).write(work / "settings.xml")


def _write_module(work: Path, jars: JarSet) -> None:
    root = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(root, "info", organisation="deltamirror", module=jars.name)
    ElementTree.SubElement(ElementTree.SubElement(root, "configurations"), "conf", name="default")
    dependencies = ElementTree.SubElement(root, "dependencies")
    for organisation, name, version in jars.artifacts:
        artifact = {"org": organisation, "name": name, "rev": version, "conf": "default->default"}
        ElementTree.SubElement(dependencies, "dependency", artifact)
    ElementTree.ElementTree(root).write(work / "ivy.xml")


def _run_ivy(work: Path, name: str) -> str | None:
    """Resolve and copy the artifacts; return None on success, else one line with the failure."""
    pattern = str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]")
    ivy = next(Path(str(files("pyspark"))).glob("jars/ivy-*.jar"))
    command = [str(java()), "-cp", str(ivy), "org.apache.ivy.Main"]
    command += ["-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml")]
    command += ["-types", "jar", "bundle", "-retrieve", pattern]
    log = work / "ivy.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_reporting(process, log, name)
    finally:
        process.kill()
        process.wait()
    lines = log.read_text().splitlines()
    # In this order: the repository's error explains the artifacts that are missing.
    signs = ("Server access error", "module not found:", "[FAILED", "UNRESOLVED")
    failures = [line for sign in signs for line in lines if sign in line]
    if process.returncode == 0 and not failures:
        return None
    problem = (failures or lines[-1:] or [f"exit code {process.returncode}"])[0].strip(" \t:")
    return _redact_urls(problem)


def _wait_reporting(process: subprocess.Popen[bytes], log: Path, name: str) -> None:
    """Wait for the end of *process*, at most _ATTEMPT_SECONDS, and print its progress."""
    give_up_at = time.monotonic() + _ATTEMPT_SECONDS
    while time.monotonic() < give_up_at:
        try:
            process.wait(timeout=_REPORT_SECONDS)
        except subprocess.TimeoutExpired:
            text = log.read_text()
            found, fetched = text.count("found "), text.count("[SUCCESSFUL")
            _print_line(f"  {name}: {found} artifacts found, {fetched} fetched")
        else:
            return


def _redact_urls(text: str) -> str:
    """Return *text* without the user names and passwords of the URLs in it."""
    return re.sub(r"://[^/@\s]*@", "://", text)


def _print_line(line: str) -> None:
    # On stderr, because stdout may be JSON. In one write, because two downloads run in parallel.
    sys.stderr.write(f"{line}\n")


def fetch_all(jars: JarSet) -> None:
    """Fetch *jars* from the command line: an error is one line and ends the process with 1."""
    try:
        fetch(jars)
    except DeltamirrorError as error:
        raise SystemExit(f"{error}. {error.hint}") from None


if __name__ == "__main__":
    fetch_all(DELTA)
