"""Provide the lake and the clusters of a configuration."""

from __future__ import annotations

from threading import Lock

from deltamirror.timings import Timings
from resources.coordination.status_file import StatusFile
from resources.delta.lake import DeltaLake
from resources.kafka.cluster import KafkaCluster
from schemas.config.config import Config
from schemas.errors.base import ConfigError


class MirrorContext:
    """The lake and the clusters of *config*. Clients are created on first use and cached."""

    def __init__(self, config: Config, timings: Timings | None = None) -> None:
        self.config = config
        self.timings = timings or Timings()
        self.lake = DeltaLake(config.lake)
        self.status_file = StatusFile(self.lake.root)
        self._clusters: dict[str, KafkaCluster] = {}
        self._lock = Lock()

    def cluster(self, alias: str) -> KafkaCluster:
        """Return the cluster *alias*, one object for all threads. Raises ConfigError."""
        with self._lock:
            if alias not in self._clusters:
                if alias not in self.config.clusters:
                    known = ", ".join(self.config.clusters)
                    raise ConfigError(f"there is no cluster {alias} (clusters: {known})")
                self._clusters[alias] = KafkaCluster(alias, self.config.clusters[alias].admin)
            return self._clusters[alias]

    def close(self) -> None:
        """Drop the cached clients. A client closes when its last reference is gone."""
        with self._lock:
            self._clusters.clear()
