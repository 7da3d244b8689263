"""Start and configure the process's Spark, for the workers that stage and replay and for SQL."""

from __future__ import annotations

import atexit
import logging
import os
import shlex
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, current_thread, main_thread

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from resources.java import java, java_version
from resources.spark.jars import cache_root, delta_jars
from resources.spark.worker_pool import Answer, Job, Work, WorkerPool
from schemas.errors.base import DeltamirrorError
from schemas.errors.environment import SparkFailedError

MAX_WORKERS = 1_024  # Spark's task slots: each resident worker occupies one, though mostly idle
SHUTDOWN_TIMEOUT_S = 5.0  # in which Spark's JVM must end after the process closed its stdin
ARCHIVE_TIMEOUT_S = 120.0  # the same for a JVM that writes its class archive at the end
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # The JVM only schedules tasks; no record passes through it. So it is set to start fast, not to
    # run fast: a restart takes half of the CPU time. The small initial heap saves 80 MiB.
    _JAVA_OPTIONS: "-Xms48m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # The default is one thread per task slot.
    "spark.rpc.netty.dispatcher.numThreads": "2",
    # A worker's jobs have side effects, so Spark must not retry them. The loop retries.
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.python.daemon.module": "resources.spark.worker_daemon",
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
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


def spark_session() -> SparkSession:
    """Return the process's SparkSession for SQL over the lake. Raises as `spark_context` does."""
    spark_context()
    return SparkSession.builder.getOrCreate()


def spark_context(cores: int | None = None) -> SparkContext:
    """Return the process's SparkContext, started at the first call. Workers need nothing else.

    *cores* is the default parallelism of SQL; only the first call's value counts. Raises
    JavaMissingError, DownloadFailedError, SparkFailedError.
    """
    global _context
    with _lock:
        if _context is None:
            _context = _start(cores or os.cpu_count() or 2, _class_options())
        return _context


def archive_classes() -> None:
    """Archive the JVM's classes that a start of workers loads, unless the archive exists.

    Most of a start's CPU time is spent on loading and verifying classes. With an archive (JEP 350)
    Spark and its first workers start in three quarters of the time and take no more memory. One
    start saves less time than writing the archive takes, so `make setup` does it. Raises
    JavaMissingError, DownloadFailedError, SparkFailedError.
    """
    if _class_options():
        return
    print("archiving the classes of Spark's JVM", file=sys.stderr, flush=True)  # noqa: T201
    archive = _class_archive()
    new = archive.with_suffix(f".{os.getpid()}.new")
    context = _start(1, ["-Xlog:disable", f"-XX:ArchiveClassesAtExit={new}"])
    workers = WorkerPool[Sequence[str], str](lambda: context, lambda: list)
    workers.run({0: ["a job"]})
    workers.close()
    if not _stop_context(context, ARCHIVE_TIMEOUT_S) or not new.exists():
        new.unlink(missing_ok=True)  # it may be incomplete
        raise SparkFailedError("Java wrote no class archive")
    new.replace(archive)


def _class_options() -> list[str]:
    """Return the JVM options that use the class archive, or none if there is no valid archive."""
    archive = _class_archive()
    with suppress(FileNotFoundError):
        if archive.stat().st_mtime_ns > _jars().stat().st_mtime_ns:
            # If Java cannot use the archive, it starts without it, and without a warning.
            return ["-Xlog:disable", f"-XX:SharedArchiveFile={archive}"]
    return []


def _class_archive() -> Path:
    """Return the path of the class archive for this Java and this installation of Spark."""
    home = zlib.crc32(os.fsencode(_jars()))
    return cache_root() / f"spark-{pyspark.__version__}-java{java_version(java())}-{home:08x}.jsa"


def _jars() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "jars")


def _start(cores: int, java_options: Sequence[str]) -> SparkContext:
    os.environ.setdefault("JAVA_HOME", str(java().resolve().parent.parent))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        **CONF,
        _JAVA_OPTIONS: f"{CONF[_JAVA_OPTIONS]} {shlex.join(java_options)}",
        "spark.default.parallelism": str(cores),
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        # A client has about 12 threads, and each thread's malloc arena would keep freed memory.
        "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    }
    conf = SparkConf().setMaster(f"local[{MAX_WORKERS}]").setAppName("deltamirror")
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext.getOrCreate(conf.setAll(list(settings.items())))
    except PySparkRuntimeError as error:
        raise SparkFailedError("Spark did not start, because its JVM ended") from error
    if current_thread() is main_thread():
        # PySpark's handler cancels all jobs. The command's own handler decides how to stop.
        signal.signal(signal.SIGINT, interrupt)
    atexit.register(_stop_context, context)
    return context


def _stop_context(context: SparkContext, within_s: float = SHUTDOWN_TIMEOUT_S) -> bool:
    """Close the stdin of Spark's JVM, which ends it, or kill it; return whether it ended itself."""
    # `SparkContext.stop` waits without a bound for a worker that is starting.
    jvm: subprocess.Popen[bytes] = context._gateway.proc  # type: ignore[union-attr]
    # Both would report the JVM's end: py4j in its log, if another thread still calls the JVM, and
    # the accumulator server on stderr.
    logging.disable()
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    assert jvm.stdin is not None
    jvm.stdin.close()
    try:
        jvm.wait(within_s)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
    return jvm.returncode == 0


class SparkWorkers:
    """Spark's Python workers, *cores* for each role."""

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def worker_pool(self, make: Callable[[], Work[Job, Answer]]) -> WorkerPool[Job, Answer]:
        """Return a pool of workers for one role, none of them started. The caller closes it."""
        return WorkerPool(lambda: spark_context(self.cores), make)


if __name__ == "__main__":
    # `make setup` runs this after the download of the jars.
    try:
        archive_classes()
    except SparkFailedError as error:  # its own hint is about a running mirror
        raise SystemExit(f"{error}. To retry: python -m resources.spark.session") from None
    except DeltamirrorError as error:
        raise SystemExit(f"{error}. {error.hint}") from None
