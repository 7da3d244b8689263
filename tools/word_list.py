"""Find wordings that are hard to read: `python -m tools.word_list`, part of `make check`.

It reads comments, strings and names of tests in Python files, and the text of Markdown and
properties files. A line that needs one of these words is listed in ALLOWED with its reason.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

WORDS = (
    (r"told|tells?|telling", "report, return, log, list"),
    (r"anew", "again, re-created"),
    (r"beside", "next to, besides, while"),
    (r"(?:go|goes|going|gone|went) on", "continue, resume, happen"),
    (r"by (?:itself|themselves)", "automatically"),
    (r"let(?:s|ting)? (?:it |them |everything )?go", "release, delete, accept as lost"),
    (r"stood|stands? (?:for|at|in|still|on|beside|there)", "is, means, does not move"),
    (r"for good|for ever", "permanently, without a bound"),
    (r"behind (?:it|them|that|this|those|what|the end)", "after"),
    (r"li(?:fe|ves) of (?:a|the|its|that|this|one) (?:topic|partition)", "incarnation"),
    (r"former li(?:fe|ves)|new li(?:fe|ves)", "incarnation"),
    (r"troubles?|troubled", "error, failure"),
    (r"look(?:s|ed|ing)? (?:at|closer)", "read, check, compare"),
    (r"nobody|somebody|whoever|whatever", "name the program, the user or the thing"),
    (r"made good|mends?|mended", "repair, correct"),
    (r"sa(?:ys?|id) so", "report"),
    (r"dut(?:y|ies)", "role"),
    (r"sick|hopeless|patience", "failing, permanent, backoff"),
    (r"hears?|heard|vouch(?:es)?|judges?|witness", "receive, check, decide"),
    (r"(?:is|are|was|were|been) asked|asked for", "request, require"),
    (r"what (?:it|they) (?:is|are|was|were|has|have|holds?|does)", "the noun"),
    (r"be (?:they|it)|the like|as it were|all the same", "a plain sentence"),
)
PATTERNS = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), better) for words, better in WORDS]

ALLOWED: dict[str, tuple[str, ...]] = {
    "tools/word_list.py": ("",),  # the list itself
    "CHANGELOG.md": ("--anew",),  # an option of that name is gone
    "tools/docs/metrics.py": ("`sick`",),  # a key of /healthz
    "docs/metrics.md": ("`sick`",),  # the same
    "schemas/staging/segment.py": ("log cut, goes on",),  # a value in tables that exist already
    # the JSON key of the status files
    "resources/coordination/status_file.py": ("{pid, at_ms, ", '"troubles"'),
    "tests/resources/coordination/test_status_file.py": ('"troubles"',),
    "deltamirror/cli/groups.py": ('"troubles"',),  # a JSON key
    "deltamirror/cli/plan.py": ('"troubles"',),  # a JSON key
    "tests/deltamirror/cli/test_plan.py": ('"troubles"',),
    "tests/deltamirror/cli/test_translate.py": ('"troubles"',),
    "tests/deltamirror/monitoring/test_metrics_samples.py": ('"sick"',),
    "tests/stories/operations/test_json_output.py": ('"nobody"',),  # a group in the golden files
    "deltamirror/monitoring/dry_run.py": ('"troubles"',),  # a JSON key
    "deltamirror/monitoring/flow_status.py": ('"troubles"',),  # a JSON key
    "deltamirror/monitoring/metrics_server.py": ('"sick"',),  # a JSON key
}
"""Texts by file; a line that contains one of them may use any word. An empty text: every line."""

PROSE = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}

SKIPPED = ("benchmarks/results/", "LICENSE", "tests/support/golden/")


def main() -> int:
    """Print the wordings to change in the paths of the command line; return 1 if there are any."""
    command = ["git", "ls-files", "*.py", "*.md", "*.properties"]
    listed = subprocess.check_output(command, text=True).split()
    wanted = tuple(sys.argv[1:]) or ("",)
    found = 0
    for name in listed:
        if name.startswith(SKIPPED) or not name.startswith(wanted) or not Path(name).is_file():
            continue
        for number, text in texts(Path(name)):
            if any(part in text for part in ALLOWED.get(name, ())):
                continue
            for pattern, better in PATTERNS:
                if match := pattern.search(text):
                    found += 1
                    print(f"{name}:{number}: {match.group()!r}: write {better}")
    print(f"{found} wordings to change" if found else "No wordings to change.")
    return 1 if found else 0


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of prose in the file at *path*, with their numbers."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in PROSE:
            yield from enumerate(token.string.splitlines(), token.start[0])
        elif token.type == tokenize.NAME and token.string.startswith("test_"):
            yield token.start[0], token.string.replace("_", " ")


if __name__ == "__main__":
    sys.exit(main())
