"""The file map of docs/architecture.md names every module of the tree, and nothing else."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("assets", "deltamirror", "demo", "pipeline", "resources", "schemas", "tools")
MAX_MODULES = 16
ONE_FILE_PER_COMMAND = "deltamirror/cli"


def file_map() -> dict[str, list[str]]:
    """Return the modules that the map lists under each folder, in the map's order."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```text\n(.*?)^```", page, re.M | re.S)
    folders: dict[str, list[str]] = {}
    folder = ""
    for line in block.splitlines():
        if line.startswith(" "):
            folders[folder] += line.split()
        else:
            folder, purpose = line.split("/ ", 1)
            assert purpose.strip(), f"{folder} has no purpose in the map"
            assert folder not in folders, f"{folder} is in the map twice"
            folders[folder] = []
    return folders


def tree() -> dict[str, list[str]]:
    """Return the modules of each folder of the product, `__init__` not counted."""
    folders: dict[str, list[str]] = {}
    for package in PACKAGES:
        # Not ROOT: the wheel is tested where the source of its packages is out of reach.
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        above = Path(spec.origin).parents[1]
        for path in sorted((above / package).rglob("*.py")):
            modules = folders.setdefault(path.parent.relative_to(above).as_posix(), [])
            if path.stem != "__init__":
                modules.append(path.stem)
    return folders


def test_only_one_class_reads_the_table_segments():
    """It also reads the commits of `records` that are not in the table yet."""
    readers = [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if re.search(r"\bSEGMENTS\b", path.read_text(encoding="utf-8"))
    ]

    assert set(readers) <= {
        "resources/delta/lake.py",
        "resources/delta/segments_table.py",
        "schemas/tables.py",
    }


def test_the_map_names_each_folder_of_the_tree_and_no_other():
    assert sorted(file_map()) == sorted(tree())


@pytest.mark.parametrize("folder", sorted(tree()))
def test_the_map_names_each_module_of_a_folder_once_and_no_other(folder):
    assert sorted(file_map()[folder]) == tree()[folder]


@pytest.mark.parametrize("folder", sorted(tree().keys() - {ONE_FILE_PER_COMMAND}))
def test_a_folder_holds_at_most_16_modules(folder):
    assert len(tree()[folder]) <= MAX_MODULES
