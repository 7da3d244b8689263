"""Send SIGKILL at a given call of a started `deltamirror run`, without any code in the product.

A folder on PYTHONPATH, which Spark's Python workers inherit, has a `sitecustomize` that wraps one
function when its module is imported. The n-th call of it writes a marker and kills or stops its own
process, the driver or the broker. This happens once; processes that start later are not affected.
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
"""Seconds in which the client sends a request to a frozen broker before it is killed."""


@dataclass(frozen=True)
class CrashEffect:
    """Which of `driver`, `worker` and `broker` are killed, and which are stopped until continued.

    The worker is the process that makes the call, if that is not the driver.
    """

    killed: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()

    def befalls(self, who: str) -> bool:
        """Return whether *who* is killed or stopped."""
        return who in (*self.killed, *self.stopped)


WORKER = CrashEffect(("worker",), ("driver",))
"""The driver is stopped, so that the test can check the state, until the test continues it."""

DRIVER_ALONE = CrashEffect(("driver",))
"""A busy worker has no driver to answer to."""

BOTH = CrashEffect(("driver", "worker"))

UNANSWERED = CrashEffect(("driver", "worker"), ("broker",))
"""During a call that a frozen broker does not answer."""

UNANSWERED_WORKER = CrashEffect(("worker",), ("broker", "driver"))

BROKER = CrashEffect(("broker",), ("driver", "worker"))
"""The run is stopped until the broker is restarted and the test has checked the state."""

BROKER_ALONE = CrashEffect(("broker",))
"""The run continues, and notices that the broker is gone."""

BROKER_TOO = CrashEffect(("broker", "driver", "worker"))

ASLEEP = CrashEffect((), ("worker",))
"""The driver waits for a stopped worker, until the test continues it."""

ZOMBIE = CrashEffect(("driver",), ("worker",))
"""The worker continues after another run has done its work."""


@dataclass(frozen=True)
class Crash:
    """A crash before or after call number *call* of *where*, a `module:Class.method`."""

    where: str
    when: str
    call: int
    fate: CrashEffect


def armed(crash: Crash, folder: Path, broker: int | None = None) -> dict[str, str]:
    """Return the environment with which a started process executes *crash*.

    *folder* gets the `sitecustomize` and the marker; *broker* is the broker's process id.
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
    """Return the file that exists after the crash, with the id of the crashed process."""
    return folder / "met"


def outcome(folder: Path) -> Path:
    """Return the file with the result of the call, if its process survived."""
    return folder / "outcome"


def of_session(pid: int) -> list[int]:
    """Return the running processes of the session of process *pid*, which may have ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended between the listing and the reading
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


def arm() -> None:
    """Watch for the import of the crash's module; every Python process calls this at its start."""
    is_driver = os.environ.setdefault(DRIVER, str(os.getpid())) == str(os.getpid())
    order = json.loads(os.environ[ORDER])
    # If a worker is to die, the driver's calls do not count.
    if not (is_driver and CrashEffect(**order["fate"]).befalls("worker")):
        sys.meta_path.insert(0, _Watch(order))


class _Watch(MetaPathFinder):
    """Import hook that wraps a function of one module directly after its import."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._order = order
        self._module, self._function = order["where"].split(":")

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of the watched module, with a loader that also wraps the function."""
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
    """Replace *function*, a `Class.method` of *module*, with a function that crashes."""
    owner, name = function.split(".")
    kind = getattr(module, owner)
    dying = _dying(getattr(kind, name), order)
    try:
        setattr(kind, name, dying)
    except TypeError:  # a class written in C cannot be changed, but its name in the module can
        setattr(module, owner, type(owner, (kind,), {name: dying}))


def _dying(function: Callable[..., Any], order: Mapping[str, Any]) -> Callable[..., Any]:
    calls = count(1)

    @functools.wraps(function)
    def dying(*args: Any, **kwargs: Any) -> Any:
        is_due = next(calls) == order["call"]
        if is_due and order["when"] == "before" and _die(order):
            return _recorded(function, Path(order["outcome"]), *args, **kwargs)
        answer = function(*args, **kwargs)
        if is_due and order["when"] == "after":
            _die(order)
        return answer

    return dying


def _recorded(function: Callable[..., Any], file: Path, *args: Any, **kwargs: Any) -> Any:
    """Call *function* in a process that survived, and write its outcome to *file*."""
    try:
        answer = function(*args, **kwargs)
    except BaseException as error:
        file.write_text(repr(error))
        raise
    file.write_text("done")
    return answer


def _die(order: Mapping[str, Any]) -> bool:
    """Write the marker, then stop and kill; return False if another process has crashed before.

    It returns only in a process that is neither killed nor stopped, or that was continued.
    """
    try:
        with Path(order["marker"]).open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    fate = CrashEffect(**order["fate"])
    pids = {"driver": int(os.environ[DRIVER]), "broker": order["broker"], "worker": os.getpid()}
    if "broker" in fate.stopped:  # the call comes next; the others are killed while it waits
        os.kill(order["broker"], signal.SIGSTOP)
        threading.Thread(target=_later, args=(fate, pids), daemon=True).start()
    else:
        if "worker" in fate.stopped:
            os.setsid()  # otherwise it is continued and ended together with the driver
        _befall(fate, pids)
    return True


def _later(fate: CrashEffect, pids: Mapping[str, int]) -> None:
    time.sleep(SENT_S)
    _befall(fate, pids)


def _befall(fate: CrashEffect, pids: Mapping[str, int]) -> None:
    """Send the signals, to this process last."""
    for who in ("broker", "driver", "worker"):
        with contextlib.suppress(ProcessLookupError):
            if who in fate.killed:
                os.kill(pids[who], signal.SIGKILL)
            elif who in fate.stopped:
                os.kill(pids[who], signal.SIGSTOP)
