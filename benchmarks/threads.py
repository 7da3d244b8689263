"""CPU seconds of a process by thread, from Linux's /proc, so for threads of any language."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.meter import TICKS_PER_S


@dataclass(frozen=True)
class Threads:
    """Name and CPU seconds of the running threads of a process, by the kernel's thread id.

    Linux keeps 15 characters of a name.
    """

    used: Mapping[int, tuple[str, float]]

    @classmethod
    def of(cls, pid: int) -> Threads:
        """Read the threads of process *pid*."""
        used = {}
        for folder in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # the thread has just ended
                head, _, rest = (folder / "stat").read_text().rpartition(")")
                ticks = rest.split()[11:13]
                used[int(folder.name)] = (
                    head.partition("(")[2],
                    sum(int(each) for each in ticks) / TICKS_PER_S,
                )
        return cls(used)

    def since(
        self, before: Threads, group_of: Callable[[str], str], but: Collection[int] = ()
    ) -> dict[str, float]:
        """Return the CPU seconds since *before* by group of names, without the threads *but*."""
        found: defaultdict[str, float] = defaultdict(float)
        for number, (name, used_s) in self.used.items():
            if number not in but:
                found[group_of(name)] += used_s - before.used.get(number, ("", 0.0))[1]
        return dict(found)
