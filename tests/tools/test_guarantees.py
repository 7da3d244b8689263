"""The tests, commands, targets and links that README and docs name exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PARITY = (ROOT / "docs" / "mm2-parity.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", GUARANTEES + PARITY)


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED)))
def test_a_test_that_a_page_names_exists(file, test):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))

    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_guarantee_names_a_test():
    promises = re.findall(r"^- (.*(?:\n  .*)*)", GUARANTEES.split("## Not promised")[0], re.M)

    assert promises
    assert [promise for promise in promises if "::test_" not in promise] == []


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_a_page_that_is_linked_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)

    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^    make ([a-z-]+)", README, re.M))))
def test_a_make_target_that_the_readme_names_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


def test_every_command_that_the_docs_name_exists():
    from deltamirror.cli.main import main

    pages = README + "".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs").glob("*.md"))
    named = set(re.findall(r"^    (?:\S*/)?deltamirror ([a-z0-9-]+)", pages, re.M))

    assert named
    assert named - set(main.commands) == set()
