"""Keep the results of a comparison, so that an interrupted run can be resumed.

A run resumes if it has the same arguments as the interrupted one.

    <lake>/audits/us-east__eu-west-<arguments>.jsonl    a line for each part that was compared

<arguments> is a hash of the topics, the sides and the share. A comparison that completes removes
its file. A file older than a day is removed and not resumed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from pipeline.verification.parts import Part
from pipeline.verification.suspects import SumComparison

log = logging.getLogger(__name__)

MAX_AGE_S = 24 * 3600
"""Age in s from which on a resume file is not used."""


class ResumeFile:
    """The resume file of a flow and of the *arguments* of its comparison.

    *known* are the results of an earlier run, by part; *records* is the number of staged records
    that they cover. *seed* is that of the sample.
    """

    def __init__(
        self, lake: Path, flow_key: str, arguments: Sequence[Any], *, no_resume: bool
    ) -> None:
        asked = json.dumps(arguments, sort_keys=True)
        name = hashlib.blake2b(asked.encode(), digest_size=6).hexdigest()
        self.path = lake / "audits" / f"{flow_key}-{name}.jsonl"
        self.seed = uuid4().hex
        self.known: dict[str, SumComparison] = {}
        self.records = 0
        if no_resume or not self._is_recent():
            self.end()
        self._read()
        self._write({"seed": self.seed})

    def get(self, part: Part) -> SumComparison | None:
        """Return the earlier result of *part*; None if there is none or if the part changed."""
        return self.known.get(_part_key(part))

    def add(self, part: Part, comparison: SumComparison) -> None:
        """Append the result of *part*."""
        self._write(
            {
                "part": _part_key(part),
                "staged": part.records,
                "records": comparison.records,
                "suspects": comparison.suspects,
                "extras": comparison.extras,
                "explained": dict(comparison.explained),
                "met": comparison.first_match,
            }
        )

    def end(self) -> None:
        """Remove the file, because the comparison is complete."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _is_recent(self) -> bool:
        with suppress(OSError):
            return time.time() - self.path.stat().st_mtime < MAX_AGE_S
        return False

    def _read(self) -> None:
        with suppress(OSError):
            for line in self.path.read_text().splitlines():
                # The last line of a killed run may be incomplete.
                with suppress(ValueError, KeyError):
                    row = json.loads(line)
                    if "seed" in row:
                        self.seed = row["seed"]
                    else:
                        self.known[row["part"]] = _comparison(row)
                        self.records += row["staged"]

    def _write(self, row: dict[str, Any]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            log.warning("%s cannot be written, so verify cannot be resumed: %s", self.path, error)


def _part_key(part: Part) -> str:
    source, target_range = part.source, part.on_target
    spans: list[Any] = [source.topic, source.topic_id, source.partition, part.start, part.end]
    spans.append(part.on_source is not None)
    if target_range is not None:
        spans += [
            str(target_range.partition),
            target_range.topic_id,
            target_range.start,
            target_range.end,
        ]
    return json.dumps(spans)


def _comparison(row: dict[str, Any]) -> SumComparison:
    suspects, extras = (tuple((a, b) for a, b in row[name]) for name in ("suspects", "extras"))
    return SumComparison(row["records"], suspects, extras, row["explained"], row["met"])
