"""Build the wheel, install it where the source is out of reach, and run the tests there.

In the repository's root, tests import the source even if a package is missing from the wheel. The
new environment uses the pinned dependencies of .venv, but not the link to the source that the
editable install has there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIDE_BY_SIDE = ("--numprocesses", "2", "--dist", "loadfile")
PACKAGES = ("assets", "deltamirror", "pipeline", "resources", "schemas")


def main() -> int:
    """Return pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="deltamirror-wheel-") as temporary:
        work = Path(temporary).resolve()
        wheel = build(work / "dist")
        python = install(wheel, work / "venv")
        elsewhere = work / "elsewhere"
        copy_all_but_packages(elsewhere)
        prove_origin(python, elsewhere)
        tests = [str(python), "-m", "pytest", "-q", "-m", "not kafka and not story", *SIDE_BY_SIDE]
        return subprocess.run(tests, cwd=elsewhere).returncode


def build(folder: Path) -> Path:
    """Build the wheel into *folder* with the hatchling of this environment; return its path."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run([*command, "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def install(wheel: Path, folder: Path) -> Path:
    """Make an environment with *wheel* and this one's dependencies; return its interpreter."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    # A wheel of pure Python is installed by unpacking it.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site_packages = folder / "lib" / version / "site-packages"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site_packages)
    # Python searches a path in a .pth file, but does not read .pth files there: so the editable
    # install's link to the source has no effect.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def copy_all_but_packages(folder: Path) -> None:
    """Copy all files that tests read, except the packages of the wheel, into the new *folder*."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True)
    for name in filter(None, listed.split("\0")):
        if name.split("/")[0] not in PACKAGES and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def prove_origin(python: Path, elsewhere: Path) -> None:
    """Raise SystemExit if the new interpreter imports a package from anywhere but the wheel."""
    names = ", ".join(PACKAGES)
    script = f"import {names}; print(*(package.__file__ for package in ({names})))"
    found = subprocess.check_output([python, "-c", script], cwd=elsewhere, text=True)
    for origin in found.split():
        if not Path(origin).is_relative_to(python.parent.parent):
            raise SystemExit(f"imported from {origin}, not from the wheel")


if __name__ == "__main__":
    sys.exit(main())
