"""A site with a real lake and two clusters in dicts, whose tasks run right here."""

from dataclasses import replace

from assets.site import Site
from tests.assets.places import config
from tests.fake_cluster import FakeCluster, FakeSource, FakeTarget


class FakeClusters(Site):
    """A site of one flow, us-east->eu-west, with *bounds* of the work."""

    def __init__(self, root, monkeypatch, **bounds):
        super().__init__(replace(config(root), **bounds))
        self.source = self._clusters["us-east"] = FakeCluster("us-east")
        self.target = self._clusters["eu-west"] = FakeCluster("eu-west")
        self.reader = FakeSource(self.source)
        self.faults = None
        monkeypatch.setattr("assets.tasks.RangeReader", lambda settings: self.reader)
        monkeypatch.setattr(
            "assets.tasks.SlotProducer",
            lambda flow, slot, *_: FakeTarget(self.target, flow, slot, self.faults),
        )

    @property
    def flow(self):
        return self.config.flows[0]


class Inline:
    """Workers that do everything at once, in this process."""

    def run(self, pool, work, jobs):
        return [answer for job in jobs for answer in work(job)]
