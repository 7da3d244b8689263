"""What fails in a way that nobody thought of ends no loop: it is told, and tried again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from schemas.errors import DeltamirrorError

log = logging.getLogger(__name__)


class DefectError(DeltamirrorError):
    """Something failed in a way that was not thought of."""

    hint = "This is a defect of deltamirror: the log holds the whole report. The loop tries again."

    def __init__(self, error: BaseException) -> None:
        super().__init__("".join(f"{type(error).__name__}: {error}".splitlines()[:1]))


@contextmanager
def defects_told() -> Iterator[None]:
    """Raise DefectError for any error that is none of ours: a loop goes on and says so."""
    try:
        yield
    except DeltamirrorError:
        raise
    except Exception as error:
        log.exception("a defect")
        raise DefectError(error) from error
