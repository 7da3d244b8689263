"""Disasters: each kind once, in an order that the seed gives, then again."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.chaos.driver import Driver
from tests.chaos.ground import MOST_PARTITIONS, Ground, Side
from tests.chaos.watch import Watch
from tests.support.world import until

CALM_S = (1.0, 6.0)
"""Seconds between two disasters: shortest and longest."""

RECOVERED = 0.7
"""Share of disasters that start after the mirror has recovered; others start during recovery."""

STALL_S = 180.0
"""Seconds that a mirror may take until records arrive again."""


@dataclass
class Disasters:
    """Run disasters on *ground* and *driver* while *watch* measures arrivals; report each to *log*.

    *done* counts disasters by kind. *stalls* has a line for each disaster after which no record
    arrived for `STALL_S`.
    """

    ground: Ground
    driver: Driver
    watch: Watch
    seed: int
    log: Callable[[str], None]
    done: Counter[str] = field(default_factory=Counter)
    stalls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed} disasters")

    def run(self, seconds: float) -> None:
        """Run disasters for *seconds*; return after the last one is over and repaired."""
        begun = time.monotonic()
        bag: list[Callable[[], str | None]] = []
        while (left := begun + seconds - time.monotonic()) > 0:
            calm = self._random.uniform(*CALM_S)
            time.sleep(min(calm, left))
            if calm >= left:
                break
            bag = bag or self._random.sample(self._kinds, len(self._kinds))
            disaster = bag.pop()
            at = time.monotonic() - begun
            what = disaster()
            if what is not None:
                self.done[disaster.__name__] += 1
                self.log(f"{at:6.1f} s  {disaster.__name__}: {what}")
                if self._random.random() < RECOVERED:
                    self._await_movement(disaster.__name__)
        for side in self.ground.sides:
            side.heal()

    def _await_movement(self, after: str) -> None:
        before, begun = self.watch.arrived, time.monotonic()
        try:
            until(lambda: self.watch.arrived > before, "the target grows", STALL_S)
        except TimeoutError:
            self.stalls.append(f"nothing moved for {STALL_S:.0f} s after {after}")
        self.log(f"          records arrive again after {time.monotonic() - begun:.1f} s")

    @property
    def _kinds(self) -> list[Callable[[], str | None]]:
        return [
            self.driver_killed,
            self.worker_killed,
            self.broker_killed,
            self.broker_frozen,
            self.network_cut,
            self.full_restart,
            self.two_instances,
            self.topic_grown,
        ]

    def driver_killed(self) -> str:
        self.driver.kill()
        return "kill -9 of deltamirror run"

    def worker_killed(self) -> str | None:
        return "kill -9 of a Spark Python worker" if self.driver.kill_worker() else None

    def broker_killed(self) -> str:
        side, seconds = self._side(), self._random.uniform(0, 3)
        side.broker.kill()
        time.sleep(seconds)
        side.heal()
        return f"kill -9 of the {side.name}, down for {seconds:.1f} s and its start"

    def broker_frozen(self) -> str:
        side, seconds = self._side(), self._random.uniform(0.5, 12)
        side.broker.freeze()
        time.sleep(seconds)
        side.heal()
        return f"the {side.name} for {seconds:.1f} s"

    def network_cut(self) -> str:
        side, seconds = self._side(), self._random.uniform(0.5, 12)
        is_silent = self._random.random() < 0.5
        (side.proxy.hush if is_silent else side.proxy.cut)()
        time.sleep(seconds)
        side.heal()
        return f"{'silence' if is_silent else 'resets'} from the {side.name} for {seconds:.1f} s"

    def full_restart(self) -> str:
        self.driver.kill_all()
        for side in self.ground.sides:
            side.broker.kill()
        with ThreadPoolExecutor() as starters:
            list(starters.map(Side.heal, self.ground.sides))
        return "kill -9 of everything"

    def two_instances(self) -> str:
        seconds, is_first_killed = self._random.uniform(2, 8), self._random.random() < 0.5
        self.driver.rival(seconds, is_first_killed=is_first_killed)
        return f"a second run for at most {seconds:.1f} s"

    def topic_grown(self) -> str | None:
        small = [topic for topic, n in self.ground.topics.items() if n < MOST_PARTITIONS]
        if not small:
            return None
        topic = self._random.choice(small)
        return f"{topic} has {self.ground.grow(topic)} partitions"

    def _side(self) -> Side:
        return self._random.choice(self.ground.sides)
