"""A context with a real lake and two fake clusters, whose tasks run in this process."""

from dataclasses import replace

from deltamirror.context import MirrorContext
from tests.support.fake_cluster import FakeCluster, FakeSource, FakeTarget
from tests.support.lake import config


class FakeContext(MirrorContext):
    """A context of one flow, us-east->eu-west; *bounds* are fields of its Config."""

    def __init__(self, root, monkeypatch, timings=None, **bounds):
        super().__init__(replace(config(root), **bounds), timings)
        self.source = self._clusters["us-east"] = FakeCluster("us-east")
        self.target = self._clusters["eu-west"] = FakeCluster("eu-west")
        self.reader = FakeSource(self.source)
        self.faults = None
        monkeypatch.setattr("deltamirror.worker_tasks.RangeReader", lambda settings: self.reader)
        monkeypatch.setattr(
            "deltamirror.worker_tasks.SlotProducer",
            lambda flow, slot, *_: FakeTarget(self.target, flow, slot, self.faults),
        )

    @property
    def flow(self):
        return self.config.flows[0]


class InlineWorkers:
    """Workers that run jobs in this process, one after the other."""

    def worker_pool(self, make):
        return InlinePool(make)


class InlinePool:
    def __init__(self, make):
        self._make, self._works = make, {}

    def start(self, count):
        pass

    def wait_started(self):
        pass

    def run(self, jobs):
        for number in jobs:
            self._works.setdefault(number, self._make())
        return [answer for number, job in jobs.items() for answer in self._works[number](job)]

    def close(self):
        self._works = {}
