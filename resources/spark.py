"""One Spark, configured once: the workers that stage and replay, and SQL over the lake."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import Any, TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from resources.downloads import delta_jars
from resources.java import java
from schemas.errors import DeltamirrorError

Job = TypeVar("Job")
Answer = TypeVar("Answer")

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # The JVM deals out tasks, records never pass through it: it need not become fast, it must be
    # there soon. A restart so takes half of the CPU time.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.scheduler.mode": "FAIR",
    # A task here has side effects: it is run once, and the loop itself tries again (DESIGN 2.2).
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    # Without it PySpark hands jobs to the JVM through a file, and they carry clients' logins.
    "spark.io.encryption.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}

_lock = Lock()
_context: SparkContext | None = None
_session: SparkSession | None = None


class SparkFailedError(DeltamirrorError):
    """Spark did not start, or a worker of it died."""

    hint = "The loop tries again; with DELTAMIRROR_DEBUG=1 the whole report is shown."


def spark_session(cores: int | None = None) -> SparkSession:
    """Return the process's SparkSession, made at the first call: for SQL over the lake.

    Raises JavaMissingError, DownloadFailedError.
    """
    global _session
    spark_context(cores)
    with _lock:
        if _session is None:
            _session = SparkSession.builder.getOrCreate()
        return _session


def spark_context(cores: int | None = None) -> SparkContext:
    """Return the process's SparkContext, started at the first call: all that workers need.

    It has four task slots to a core: tasks mostly wait for brokers, and a flow whose target does
    not answer must not starve the others. Raises JavaMissingError, DownloadFailedError.
    """
    global _context
    with _lock:
        if _context is None:
            _context = _start(cores or os.cpu_count() or 2)
        return _context


def _start(cores: int) -> SparkContext:
    java_home = java().resolve().parent.parent
    os.environ.setdefault("JAVA_HOME", str(java_home))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        **CONF,
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        # A client has a dozen threads; an arena for each would keep what it once held.
        "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    }
    conf = SparkConf().setMaster(f"local[{4 * cores}]").setAppName("deltamirror")
    interrupt = signal.getsignal(signal.SIGINT)
    context = SparkContext.getOrCreate(conf.setAll(list(settings.items())))
    if current_thread() is main_thread():
        # PySpark puts a handler there that cancels all jobs: how to stop is the command's word.
        signal.signal(signal.SIGINT, interrupt)
    atexit.register(context.stop)
    return context


class Workers:
    """Spark's Python workers, for functions that are a task's whole work."""

    def __init__(self, cores: int) -> None:
        self._cores = cores

    def run(
        self, pool: str, work: Callable[[Job], Sequence[Answer]], jobs: Sequence[Job]
    ) -> list[Answer]:
        """Return the answers of *work* to every job, one task a job, in pool *pool*.

        Raises SparkFailedError where a worker died; *work* itself raises nothing.
        """
        context = spark_context(self._cores)
        context.setLocalProperty("spark.scheduler.pool", pool)

        def task(items: Iterable[Job]) -> Iterator[Answer]:
            _quiet_gc()
            for item in items:
                yield from work(item)
            _give_back()

        try:
            return context.parallelize(jobs, len(jobs)).mapPartitions(task).collect()
        except Exception as error:
            if os.environ.get("DELTAMIRROR_DEBUG"):
                raise
            raise SparkFailedError(f"a Spark task failed: {_cause(error)}") from error

    def warm(self) -> None:
        """Start as many workers as tasks run at a time, with what they import.

        Where one dies meanwhile, the first task that needs a worker starts it.
        """
        with suppress(SparkFailedError):
            self.run("warm", _import_all, list(range(self._cores)))


def _import_all(_: int) -> Sequence[Any]:
    import confluent_kafka  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow as pa
    import pyarrow.parquet

    pa.array([b"warm"])  # the first one imports pandas: 0.9 s
    return []


def _quiet_gc() -> None:
    """Stop the collector in a worker: it would walk every message that is held."""
    if gc.isenabled():
        gc.collect()
        gc.freeze()
        gc.disable()


def _give_back() -> None:
    """Give the memory that a task has used back to the system: workers live on and wait."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # glibc's; other libraries do without
        ctypes.CDLL(None).malloc_trim(0)


def _cause(error: BaseException) -> str:
    """Return the telling line of an error that comes with two stack traces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any("Python worker exited unexpectedly" in line for line in lines):
        return "its Python worker was killed or crashed"
    telling = [line for line in lines if "Error" in line and not line.startswith(("at ", "File"))]
    return (telling or lines or [type(error).__name__])[-1][:300]
