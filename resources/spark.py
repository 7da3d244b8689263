"""One Spark, configured once: the workers that stage and replay, and SQL over the lake."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Lock, current_thread, main_thread

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from resources.crew import Answer, Crew, Job, SparkFailedError, Work
from resources.downloads import delta_jars
from resources.java import java

SLOTS = 1_024
"""Workers that Spark may run at a time: each stays in a slot, and most of the time it waits."""

END_S = 5.0
"""How long Spark may take to end with the process."""

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # The JVM deals out tasks, records never pass through it: it need not become fast, it must be
    # there soon. A restart so takes half of the CPU time. It begins with a small heap, and so keeps
    # 80 MiB less.
    "spark.driver.extraJavaOptions": "-Xms48m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # Otherwise as many as there are slots.
    "spark.rpc.netty.dispatcher.numThreads": "2",
    # A worker's jobs have side effects: each is run once, the loop itself tries again (DESIGN 2.2).
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.python.daemon.module": "resources.worker_daemon",
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
        "spark.default.parallelism": str(cores),
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        # A client has a dozen threads; an arena for each would keep what it once held.
        "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    }
    conf = SparkConf().setMaster(f"local[{SLOTS}]").setAppName("deltamirror")
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext.getOrCreate(conf.setAll(list(settings.items())))
    except PySparkRuntimeError as error:
        raise SparkFailedError("Spark did not start: its JVM ended") from error
    if current_thread() is main_thread():
        # PySpark puts a handler there that cancels all jobs: how to stop is the command's word.
        signal.signal(signal.SIGINT, interrupt)
    atexit.register(_end, context)
    return context


def _end(context: SparkContext) -> None:
    """End Spark with the process: its JVM ends when nobody can write to it any more.

    `SparkContext.stop` would wait for a worker that is just being started, without a bound.
    """
    jvm: subprocess.Popen[bytes] = context._gateway.proc  # type: ignore[union-attr]
    # It would tell of a JVM that hangs up.
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    assert jvm.stdin is not None
    jvm.stdin.close()
    try:
        jvm.wait(END_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


class Workers:
    """Spark's Python workers, as many for a duty as *cores*."""

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def crew(self, make: Callable[[], Work[Job, Answer]]) -> Crew[Job, Answer]:
        """Return workers for one duty, none of them started yet; who asks closes them.

        *make* gives each what does its jobs.
        """
        return Crew(lambda: spark_context(self.cores), make)
