"""Start, stop, kill and freeze one local Apache Kafka broker: a KRaft node in a JVM process.

The broker's folder holds `broker.json` with its ports, cluster id and process. So a later process
can stop or restart a broker that an earlier process left running.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from demo.kafka.jars import kafka_home
from demo.kafka.processes import free_ports, restore_signals, started_at
from resources.java import java, java_version
from schemas.errors.environment import BrokerStartError, BrokerStopError

START_SECONDS = 90.0
STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05
_LOG_TAIL_LINES = 5
_PORT_TRIES = 3

_SERVER = "kafka.Kafka"
_READY = "Kafka Server started"


@dataclass(slots=True)
class _BrokerState:
    """The content of `broker.json`: ports, cluster id, and the process while it runs."""

    port: int
    controller_port: int
    cluster_id: str
    pid: int | None = None
    started: str | None = None


class Broker:
    """A Kafka cluster of one broker on 127.0.0.1, in a folder of its own.

    *properties*, such as `message.max.bytes`, override those of `server.properties`; changes of
    the dict apply at the next start. *heap_mb* is the JVM's heap in MiB. A broker opened on a
    folder that was used before keeps its ports, cluster id, data and running process.
    """

    def __init__(
        self,
        name: str,
        home: Path,
        *,
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 256,
    ) -> None:
        self.name = name
        self.home = home.absolute()
        self.log = self.home / "broker.log"
        self.properties = dict(properties or {})
        self._heap_mb = heap_mb
        self._new_class_archive = self.home / "classes.jsa"
        self._process: subprocess.Popen[bytes] | None = None
        self._state = _read_or_create_state(self.home)

    @property
    def bootstrap_servers(self) -> str:
        """Return the address for clients. A restart keeps it."""
        return f"127.0.0.1:{self._state.port}"

    @property
    def cluster_id(self) -> str:
        """Return the cluster's id. It is unique and kept with the data."""
        return self._state.cluster_id

    @property
    def pid(self) -> int | None:
        """Return the broker's process id, or None if it does not run."""
        return self._state.pid if self._is_running() else None

    def start(self) -> Broker:
        """Start the broker on its former ports and data; return when it answers.

        Do nothing if it runs. Raises BrokerStartError with the log's last lines,
        DownloadFailedError, JavaMissingError.
        """
        if self._is_running():
            return self
        has_data = (self.home / "data" / "meta.properties").exists()
        may_move = not has_data and "listeners" not in self.properties
        for left in reversed(range(_PORT_TRIES if may_move else 1)):
            try:
                self._start_once()
            except BrokerStartError as error:
                # Another process may have taken a port since it was found free.
                if not left or "Address already in use" not in str(error):
                    raise
                self._state.port, self._state.controller_port = free_ports(2)
            else:
                break
        return self

    def stop(self) -> None:
        """Shut the broker down. Raises BrokerStopError after STOP_SECONDS."""
        self.thaw()
        self._end_process(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker with SIGKILL. Raises BrokerStopError if it does not end."""
        self._end_process(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend the process until `thaw`: connections stay open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _start_once(self) -> None:
        self._write_files()
        if not (self.home / "data" / "meta.properties").exists():
            self._format()
        since = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            # A session of its own, so that Ctrl-C in the terminal does not end the broker.
            self._process = subprocess.Popen(
                self._java(_SERVER, str(self.home / "server.properties")),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                start_new_session=True,
                preexec_fn=restore_signals,
            )
        self._state.pid = self._process.pid
        self._state.started = started_at(self._process.pid)
        self._write_state()
        try:
            self._wait_until_ready(since)
        except BaseException:
            self.kill()
            raise

    def _write_files(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        clients, controller = f"PLAINTEXT://{self.bootstrap_servers}", self._state.controller_port
        settings = {
            **_PROPERTIES,
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": clients,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.home / "data"),
            **self.properties,
        }
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.home / "server.properties").write_text(lines)
        (self.home / "log4j2.properties").write_text(LOGGING)

    def _wait_until_ready(self, since: int) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        while _READY not in self._log_since(since):
            if not self._is_running():
                raise BrokerStartError(self.name, log=self.log, reason=self._log_tail(since))
            if time.monotonic() > give_up_at:
                why = f"not ready after {START_SECONDS:.0f} s: {self._log_tail(since)}"
                raise BrokerStartError(self.name, log=self.log, reason=why)
            time.sleep(_POLL_SECONDS)
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        try:
            admin.list_topics(timeout=max(1.0, give_up_at - time.monotonic()))
        except KafkaException as error:
            why = f"it listens but does not answer: {error}"
            raise BrokerStartError(self.name, log=self.log, reason=why) from error

    def _format(self) -> None:
        arguments = ["format", "-t", self.cluster_id, "-c", str(self.home / "server.properties")]
        command = self._java("kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
        if done.returncode != 0:
            self.log.write_text(done.stdout + done.stderr)
            raise BrokerStartError(self.name, log=self.log, reason=self._log_tail(0))

    def _java(self, main: str, *arguments: str) -> list[str]:
        command = [str(java()), f"-Xmx{self._heap_mb}m", "-Xss256k", "-Xlog:disable"]
        command += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        if self._class_archive.exists():
            command += [f"-XX:SharedArchiveFile={self._class_archive}"]
        elif main == _SERVER:
            command += [f"-XX:ArchiveClassesAtExit={self._new_class_archive}"]
        command += [f"-Dlog4j2.configurationFile={self.home / 'log4j2.properties'}"]
        # Sorted, because an archive is only good for the very class path it was made with.
        jars = sorted(str(jar) for jar in kafka_home().glob("*.jar"))
        return [*command, "-cp", os.pathsep.join(jars), main, *arguments]

    @cached_property
    def _class_archive(self) -> Path:
        """Return the archive of loaded classes, next to the jars. It halves a broker's start."""
        home = kafka_home()
        return home.with_name(f"{home.name}-java{java_version(java())}.jsa")

    def _end_process(self, how: signal.Signals) -> None:
        pid = self.pid
        if pid is None:
            self._forget()
            return
        self._signal(how)
        give_up_at = time.monotonic() + STOP_SECONDS
        while self._is_running():
            if time.monotonic() > give_up_at:
                raise BrokerStopError(self.name, pid=pid, waited_seconds=STOP_SECONDS)
            time.sleep(_POLL_SECONDS)
        self._forget()
        if how is signal.SIGTERM and self._new_class_archive.exists():
            with contextlib.suppress(OSError):  # Another file system. The archive only saves time.
                self._new_class_archive.replace(self._class_archive)

    def _forget(self) -> None:
        self._process = None
        if self._state.pid is not None:
            self._state.pid = self._state.started = None
            self._write_state()

    def _signal(self, which: signal.Signals) -> None:
        if self._is_running() and self._state.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._state.pid, which)

    def _is_running(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        # Another process may have this id by now: the start time distinguishes them.
        pid, started = self._state.pid, self._state.started
        return pid is not None and started is not None and started_at(pid) == started

    def _write_state(self) -> None:
        new = self.home / "broker.json.new"
        new.write_text(json.dumps(asdict(self._state), indent=2) + "\n")
        new.replace(self.home / "broker.json")

    def _log_since(self, position: int) -> str:
        with self.log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")

    def _log_tail(self, since: int) -> str:
        lines = [line.strip() for line in self._log_since(since).splitlines()]
        lines = [line for line in lines if line and not line.startswith("at ")]  # stack traces
        return " | ".join(lines[-_LOG_TAIL_LINES:]) or "it ended without a log message"


def _read_or_create_state(home: Path) -> _BrokerState:
    with contextlib.suppress(FileNotFoundError):
        return _BrokerState(**json.loads((home / "broker.json").read_text()))
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # Kafka's tools take an argument that begins with a dash for an option, so the id begins with K.
    port, controller_port = free_ports(2)
    return _BrokerState(port, controller_port, "K" + cluster_id[1:])


# One broker, few threads, little memory: two brokers and Spark fit on one machine.
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "SASL_SSL:SASL_SSL,SSL:SSL"
    ),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # The default cleaner allocates 128 MB.
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.cleaner.io.buffer.size": "65536",
    # After kill -9 the controller waits until the former session ends: 5 s instead of 14.5 s.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
}

# Warnings, errors, and the line that reports that a broker is ready.
LOGGING = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c{1})%n%ex
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
logger.ready.name=kafka.server.KafkaRaftServer
logger.ready.level=INFO
"""
