"""`kill -9` at a named call of a started `deltamirror run`, with no word of it in the product.

A folder on PYTHONPATH, which Spark's Python workers inherit, holds a `sitecustomize` that wraps one
function when its module is imported. Its n-th call leaves a marker and kills: its own process, the
driver, both, or the broker too. It does so once; what is started after a death goes on unharmed.
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
from enum import Enum
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


class Dies(str, Enum):
    """Who is killed."""

    WORKER = "the worker; the driver is stopped, so that one can look, until the test lets it go on"
    DRIVER = "the driver alone: a worker that is at work has nobody to answer to"
    BOTH = "the driver and the worker"
    BROKER_TOO = "the broker, the driver and the worker"
    UNANSWERED = "the driver and the worker, in a call that a frozen broker does not answer"


@dataclass(frozen=True)
class Crash:
    """Where to die: `module:Class.method`, before or after which call of it in its process, who."""

    where: str
    when: str
    call: int
    dies: Dies


def armed(crash: Crash, folder: Path, broker: int | None = None) -> dict[str, str]:
    """Return the environment in which a started process dies as *crash* says.

    *folder* gets the `sitecustomize` and the marker; *broker* is the process that may be killed.
    """
    folder.mkdir()
    site = "from tests.crashing import arm\n\narm()\n"
    (folder / "sitecustomize.py").write_text(site)
    order = {**asdict(crash), "marker": str(marker(folder)), "broker": broker}
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, [str(folder), inherited]))
    return {ORDER: json.dumps(order), "PYTHONPATH": path}


def marker(folder: Path) -> Path:
    """Return the file that is there once the crash was met; it names the process that met it."""
    return folder / "met"


def arm() -> None:
    """Watch for the module of the ordered crash; called in every Python process by its start."""
    os.environ.setdefault(DRIVER, str(os.getpid()))
    sys.meta_path.insert(0, _Watch(json.loads(os.environ[ORDER])))


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
        if is_due and order["when"] == "before":
            _die(order)
        answer = function(*args, **kwargs)
        if is_due and order["when"] == "after":
            _die(order)
        return answer

    return dying


def _die(order: Mapping[str, Any]) -> None:
    """Leave the marker and kill, unless another process did so before."""
    try:
        with Path(order["marker"]).open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return
    dies, driver = Dies(order["dies"]), int(os.environ[DRIVER])
    if dies is Dies.UNANSWERED:
        os.kill(order["broker"], signal.SIGSTOP)
        threading.Thread(target=_kill_later, args=(driver,), daemon=True).start()
        return
    if dies is Dies.BROKER_TOO:
        os.kill(order["broker"], signal.SIGKILL)
    os.kill(driver, signal.SIGSTOP if dies is Dies.WORKER else signal.SIGKILL)
    if dies is not Dies.DRIVER:
        os.kill(os.getpid(), signal.SIGKILL)


def _kill_later(driver: int) -> None:
    time.sleep(SENT_S)
    with contextlib.suppress(ProcessLookupError):
        os.kill(driver, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
