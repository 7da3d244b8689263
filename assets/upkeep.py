"""What goes on beside the loops, each thing at its own pace: a chore that fails is tried again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deltamirror.backoff import defects_told
from schemas.errors import DeltamirrorError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chore:
    """*step*, done about every *every_s* seconds, for the first time *first_s* after the start.

    *is_last_word*: it is done once more when the loops are done, with what they came to.
    """

    name: str
    every_s: float
    step: Callable[[], object]
    first_s: float = 0.0
    is_last_word: bool = False


class Upkeep:
    """A thread's *chores*, one at a time, until *stop* is set or the loops are *done*.

    A chore that waits for a cluster holds up those beside it: what must not wait for it belongs
    to an upkeep of its own.
    """

    def __init__(
        self, chores: Sequence[Chore], stop: threading.Event, done: threading.Event
    ) -> None:
        self._chores, self._stop, self._done = chores, stop, done
        self._told: dict[Chore, str] = {}

    def run(self) -> None:
        """Work until told to stop; what fails is tried again at the chore's next turn.

        A failure is logged once for as long as it stays the same: a chore may come every second.
        """
        start = time.monotonic()
        due = {chore: start + chore.first_s for chore in self._chores}
        while due and not self._stop.is_set():
            chore = min(due, key=lambda each: due[each])
            if self._done.wait(max(0.0, due[chore] - time.monotonic())):
                break
            self._do(chore)
            # From now on, not from when it was due: what was late is not made up for.
            due[chore] = time.monotonic() + chore.every_s
        for chore in self._chores:
            if chore.is_last_word and not self._stop.is_set():
                self._do(chore)

    def _do(self, chore: Chore) -> None:
        try:
            with defects_told():
                chore.step()
        except DeltamirrorError as error:
            if self._told.get(chore) != str(error):
                log.warning("%s: %s", chore.name, error)
            self._told[chore] = str(error)
        else:
            self._told.pop(chore, None)
