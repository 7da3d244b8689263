"""Samples in, the text that Prometheus scrapes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from schemas.monitoring.metrics import Kind, Metric, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The text that every Prometheus reads, and every agent beside it."""


class Scrape(Collector):
    """Asks *samples* at each scrape; `process_*` tells of this process besides (not of Spark's)."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return what there is to tell now."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        """Yield a family for each metric that has a sample."""
        families: dict[str, Family] = {}
        for sample in self._samples():
            metric = sample.metric
            family = families.get(metric.name)
            if family is None:
                family = families[metric.name] = _family(metric)
            labels = dict(zip(metric.labels, sample.labels, strict=True))
            family.add_sample(metric.name, labels, float(sample.value))
        yield from families.values()


def _family(metric: Metric) -> Family:
    """Return the family of *metric*; a counter's goes without the suffix of its samples."""
    is_counter = metric.kind is Kind.COUNTER
    name = metric.name.removesuffix("_total") if is_counter else metric.name
    return Family(name, metric.help, metric.kind.value)
