"""One Spark, configured once: the workers that stage and replay, and SQL over the lake."""

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
from pathlib import Path
from threading import Lock, current_thread, main_thread

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from resources.java import java, java_version
from resources.spark.jars import cache_root, delta_jars
from resources.spark.worker_pool import Answer, Job, Work, WorkerPool
from schemas.errors import DeltamirrorError, SparkFailedError

MAX_WORKERS = 1_024
"""Workers that Spark may run at a time: each stays in a slot, and most of the time it waits."""

SHUTDOWN_TIMEOUT_S = 5.0
"""How long Spark may take to end with the process."""

ARCHIVE_TIMEOUT_S = 120.0
"""How long it may take when it archives its classes before."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # The JVM deals out tasks, records never pass through it: it need not become fast, it must be
    # there soon. A restart so takes half of the CPU time. It begins with a small heap, and so keeps
    # 80 MiB less.
    _JAVA_OPTIONS: "-Xms48m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # Otherwise as many as there are slots.
    "spark.rpc.netty.dispatcher.numThreads": "2",
    # A worker's jobs have side effects: each is run once, the loop itself tries again (DESIGN 2.2).
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
_session: SparkSession | None = None


def spark_session(cores: int | None = None) -> SparkSession:
    """Return the process's SparkSession, made at the first call: for SQL over the lake.

    Raises JavaMissingError, DownloadFailedError, SparkFailedError.
    """
    global _session
    spark_context(cores)
    with _lock:
        if _session is None:
            _session = SparkSession.builder.getOrCreate()
        return _session


def spark_context(cores: int | None = None) -> SparkContext:
    """Return the process's SparkContext, started at the first call: all that workers need.

    SQL has as many tasks at a time as there are *cores*. Raises JavaMissingError,
    DownloadFailedError, SparkFailedError.
    """
    global _context
    with _lock:
        if _context is None:
            _context = _start(cores or os.cpu_count() or 2, _class_options())
        return _context


def archive_classes() -> None:
    """Have a JVM archive the classes that it takes to start workers, unless that was done.

    Reading and checking classes is what most of a start's CPU time goes to: from an archive (JEP
    350) Spark and its first workers are there after three quarters of the time, with no more
    memory. To write one takes longer than it saves, so this is a step of the set-up.

    Raises JavaMissingError, DownloadFailedError, SparkFailedError.
    """
    if _class_options():
        return
    print("archiving the classes of Spark's JVM, once", file=sys.stderr, flush=True)  # noqa: T201
    archive = _class_archive()
    new = archive.with_suffix(f".{os.getpid()}.new")
    context = _start(1, ["-Xlog:disable", f"-XX:ArchiveClassesAtExit={new}"])
    workers = WorkerPool[Sequence[str], str](lambda: context, lambda: list)
    workers.run({0: ["a job"]})
    workers.close()
    if not _stop_context(context, ARCHIVE_TIMEOUT_S) or not new.exists():
        new.unlink(missing_ok=True)  # half of one
        raise SparkFailedError("Java archived no classes")
    new.replace(archive)


def _class_options() -> list[str]:
    """Return how a JVM is told of the archive of its classes: nothing, where there is none.

    Where it cannot be used after all, Java starts without it, and is not to complain.
    """
    archive = _class_archive()
    try:
        is_good = archive.stat().st_mtime_ns > _jars().stat().st_mtime_ns
    except FileNotFoundError:
        return []
    return ["-Xlog:disable", f"-XX:SharedArchiveFile={archive}"] if is_good else []


def _class_archive() -> Path:
    """Return where the archive for this Java and this installation of Spark lies, or would."""
    home = zlib.crc32(os.fsencode(_jars()))
    name = f"spark-{pyspark.__version__}-java{java_version(java())}-{home:08x}.jsa"
    return cache_root() / name


def _jars() -> Path:
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return Path(home, "jars")


def _start(cores: int, java_options: Sequence[str]) -> SparkContext:
    java_home = java().resolve().parent.parent
    os.environ.setdefault("JAVA_HOME", str(java_home))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        **CONF,
        _JAVA_OPTIONS: f"{CONF[_JAVA_OPTIONS]} {shlex.join(java_options)}",
        "spark.default.parallelism": str(cores),
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        # A client has a dozen threads; an arena for each would keep what it once held.
        "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    }
    conf = SparkConf().setMaster(f"local[{MAX_WORKERS}]").setAppName("deltamirror")
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext.getOrCreate(conf.setAll(list(settings.items())))
    except PySparkRuntimeError as error:
        raise SparkFailedError("Spark did not start: its JVM ended") from error
    if current_thread() is main_thread():
        # PySpark puts a handler there that cancels all jobs: how to stop is the command's word.
        signal.signal(signal.SIGINT, interrupt)
    atexit.register(_stop_context, context)
    return context


def _stop_context(context: SparkContext, within_s: float = SHUTDOWN_TIMEOUT_S) -> bool:
    """End Spark with the process: its JVM ends when nobody can write to it any more.

    Return whether it did so by itself. `SparkContext.stop` would wait for a worker that is just
    being started, without a bound.
    """
    jvm: subprocess.Popen[bytes] = context._gateway.proc  # type: ignore[union-attr]
    # Both would tell of the JVM's end: py4j's log, where a thread still asks it something, and this
    # server, on stderr.
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
    """Spark's Python workers, as many for a duty as *cores*."""

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def worker_pool(self, make: Callable[[], Work[Job, Answer]]) -> WorkerPool[Job, Answer]:
        """Return workers for one duty, none of them started yet; who asks closes them.

        *make* gives each what does its jobs.
        """
        return WorkerPool(lambda: spark_context(self.cores), make)


if __name__ == "__main__":
    # `make setup`, once the jars are there.
    try:
        archive_classes()
    except SparkFailedError as error:  # its hint is for who runs a mirror
        raise SystemExit(f"{error}. To try again: python -m resources.spark.session") from None
    except DeltamirrorError as error:
        raise SystemExit(f"{error}. {error.hint}") from None
