"""`kill -9` at a named call of a started `deltamirror run`, with no word of it in the product.

A folder on PYTHONPATH, which Spark's Python workers inherit, holds a `sitecustomize` that wraps one
function when its module is imported. Its n-th call leaves a marker and kills or stops: its own
process, the driver, the broker. It does so once; what is started after that goes on unharmed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

ORDER = "TESTS_CRASH"
DRIVER = "TESTS_CRASH_DRIVER"
SENT_S = 1.0
"""How long a request to a frozen broker has to leave the client before that is killed."""


@dataclass(frozen=True)
class CrashEffect:
    """What befalls `driver`, `worker` and `broker`: killed for good, or stopped until let go on.

    The worker is the process that meets the crash, where that is not the driver itself.
    """

    killed: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()

    def befalls(self, who: str) -> bool:
        """Return whether *who* is killed or stopped."""
        return who in (*self.killed, *self.stopped)


WORKER = CrashEffect(("worker",), ("driver",))
"""The driver is stopped, so that one can look, until the test lets it go on."""

DRIVER_ALONE = CrashEffect(("driver",))
"""A worker that is at work has nobody to answer to."""

BOTH = CrashEffect(("driver", "worker"))

UNANSWERED = CrashEffect(("driver", "worker"), ("broker",))
"""In a call that a frozen broker does not answer."""

UNANSWERED_WORKER = CrashEffect(("worker",), ("broker", "driver"))

BROKER = CrashEffect(("broker",), ("driver", "worker"))
"""The run is stopped until the broker is back and the test has looked."""

BROKER_ALONE = CrashEffect(("broker",))
"""The run goes on, and sees that the broker is gone."""

BROKER_TOO = CrashEffect(("broker", "driver", "worker"))

ASLEEP = CrashEffect((), ("worker",))
"""The driver waits for a worker that does not go on, until the test lets it."""

ZOMBIE = CrashEffect(("driver",), ("worker",))
"""The worker goes on when another run has done its work."""


@dataclass(frozen=True)
class Crash:
    """Where to die: `module:Class.method`, before or after which call of it in its process, who."""

    where: str
    when: str
    call: int
    fate: CrashEffect


def armed(crash: Crash, folder: Path, broker: int | None = None) -> dict[str, str]:
    """Return the environment in which a started process dies as *crash* says.

    *folder* gets the `sitecustomize` and the marker; *broker* is the process that may be killed.
    """
    folder.mkdir()
    site = "from tests.support.crash_injection import arm\n\narm()\n"
    (folder / "sitecustomize.py").write_text(site)
    files = {"marker": str(marker(folder)), "outcome": str(outcome(folder))}
    order = {**asdict(crash), **files, "broker": broker}
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, [str(folder), inherited]))
    return {ORDER: json.dumps(order), "PYTHONPATH": path}


def marker(folder: Path) -> Path:
    """Return the file that is there once the crash was met; it names the process that met it."""
    return folder / "met"


def outcome(folder: Path) -> Path:
    """Return the file that tells how the call went on for a process that lived through it."""
    return folder / "outcome"


def of_session(pid: int) -> list[int]:
    """Return the living processes of the session that process *pid* leads, or led."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended between the listing and the reading
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


def arm() -> None:
    """Watch for the module of the ordered crash; called in every Python process by its start."""
    is_driver = os.environ.setdefault(DRIVER, str(os.getpid())) == str(os.getpid())
    order = json.loads(os.environ[ORDER])
    # Where a worker is to die, what the driver calls does not count.
    if not (is_driver and CrashEffect(**order["fate"]).befalls("worker")):
        sys.meta_path.insert(0, _Watch(order))


class _Watch(MetaPathFinder):
    """Finds nothing by itself: it wraps a function of one module right after its import."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._order = order
        self._module, self._function = order["where"].split(":")

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of the watched module as others find it, with the wrapping added."""
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _wrap(module, self._function, self._order)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _wrap(module: ModuleType, function: str, order: Mapping[str, Any]) -> None:
    """Put a function that dies in place of *function*, `Class.method`, of *module*."""
    owner, name = function.split(".")
    kind = getattr(module, owner)
    dying = _dying(getattr(kind, name), order)
    try:
        setattr(kind, name, dying)
    except TypeError:  # a class written in C cannot be changed; what is called by its name can
        setattr(module, owner, type(owner, (kind,), {name: dying}))


def _dying(function: Callable[..., Any], order: Mapping[str, Any]) -> Callable[..., Any]:
    calls = count(1)

    @functools.wraps(function)
    def dying(*args: Any, **kwargs: Any) -> Any:
        is_due = next(calls) == order["call"]
        if is_due and order["when"] == "before" and _die(order):
            return _told(function, Path(order["outcome"]), *args, **kwargs)
        answer = function(*args, **kwargs)
        if is_due and order["when"] == "after":
            _die(order)
        return answer

    return dying


def _told(function: Callable[..., Any], file: Path, *args: Any, **kwargs: Any) -> Any:
    """Call *function* for a process that lives on, and write into *file* what came of it."""
    try:
        answer = function(*args, **kwargs)
    except BaseException as error:
        file.write_text(repr(error))
        raise
    file.write_text("done")
    return answer


def _die(order: Mapping[str, Any]) -> bool:
    """Leave the marker, then stop and kill; False where another process has met the crash.

    Returns in a process that is neither killed nor stopped, or that was let go on.
    """
    try:
        with Path(order["marker"]).open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    fate = CrashEffect(**order["fate"])
    pids = {"driver": int(os.environ[DRIVER]), "broker": order["broker"], "worker": os.getpid()}
    if "broker" in fate.stopped:  # the call is still to be made: the rest is killed while it waits
        os.kill(order["broker"], signal.SIGSTOP)
        threading.Thread(target=_later, args=(fate, pids), daemon=True).start()
    else:
        if "worker" in fate.stopped:
            os.setsid()  # else it is told to wake up and to end when the driver does
        _befall(fate, pids)
    return True


def _later(fate: CrashEffect, pids: Mapping[str, int]) -> None:
    time.sleep(SENT_S)
    _befall(fate, pids)


def _befall(fate: CrashEffect, pids: Mapping[str, int]) -> None:
    """Signal everybody, this process last."""
    for who in ("broker", "driver", "worker"):
        with contextlib.suppress(ProcessLookupError):
            if who in fate.killed:
                os.kill(pids[who], signal.SIGKILL)
            elif who in fate.stopped:
                os.kill(pids[who], signal.SIGSTOP)
