"""Dagster resources for the configuration file and Spark.

No other module of `resources` imports Dagster. Dagster's UI shows the fields of a resource to all
its users, so the file's path is a field and the file's content is not.
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


class MirrorFile(dg.ConfigurableResource):  # type: ignore[type-arg] # it provides only itself
    """The mm2.properties file at *path*; every run reads it again."""

    path: str = Field(description="Path of the mm2.properties file. Its content is not shown.")

    def config(self) -> Config:
        """Return the file's configuration. Raises ConfigError if it is invalid."""
        return read_config(Path(self.path))


class Spark(LazyPySparkResource):
    """dagster-pyspark's session: the same one that runs the tasks of staging and replay."""

    spark_config: dict[str, Any] = Field(
        default={},
        description="Spark SQL settings of the session. The UI shows them: put no secrets here.",
    )

    def _init_session(self) -> None:
        if self._spark_session is None:
            session = spark_session()
            for key, value in self.spark_config.items():
                session.conf.set(key, value)
            self._spark_session = session

    def workers(self, cores: int) -> SparkWorkers:
        """Return the session's Python workers, *cores* for each role."""
        self._init_session()
        return SparkWorkers(cores)
