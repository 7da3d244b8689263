"""The configuration file and Spark as Dagster's resources. No other file here knows Dagster.

What a resource's field holds is shown to everybody who sees Dagster's UI: so the file's path is a
field and what stands in the file never is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from resources.config.load import read_config
from resources.spark.session import SparkWorkers, spark_session
from schemas.config.config import Config


class MirrorFile(dg.ConfigurableResource):  # type: ignore[type-arg] # it makes nothing but itself
    """The mm2.properties file at *path*, read anew by every run."""

    path: str = Field(description="The mm2.properties file; its secrets stay in it.")

    def config(self) -> Config:
        """Return what the file says. Raises ConfigError for what cannot be meant."""
        return read_config(Path(self.path))


class Spark(LazyPySparkResource):
    """dagster-pyspark's session, which is the one that staging and replay run their tasks on."""

    spark_config: dict[str, Any] = Field(
        default={}, description="Settings of Spark SQL for the session; seen by all, no secrets."
    )

    def _init_session(self) -> None:
        if self._spark_session is None:
            session = spark_session()
            for key, value in self.spark_config.items():
                session.conf.set(key, value)
            self._spark_session = session

    def workers(self, cores: int) -> SparkWorkers:
        """Return the session's Python workers, *cores* of them at a time."""
        self._init_session()
        return SparkWorkers(cores)
