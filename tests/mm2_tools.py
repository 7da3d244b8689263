"""MirrorMaker 2's own classes, called from a test: what they read is what its users would read."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from resources.downloads import kafka_home
from resources.java import java


@contextmanager
def mm2_tools() -> Iterator[JavaGateway]:
    """Start a JVM with MirrorMaker 2's jars; it ends with the block."""
    (py4j_jar,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(py4j_jar),
        classpath=f"{kafka_home()}/*",
        java_path=str(java()),
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.java_process.wait(10) if gateway.java_process else None


def translate_offsets(
    gateway: JavaGateway, bootstrap: str, remote_alias: str, group: str
) -> Mapping[tuple[str, int], int]:
    """Return what `RemoteClusterUtils.translateOffsets` says, keyed by (topic, partition)."""
    jvm = gateway.jvm
    properties = jvm.java.util.HashMap()
    properties.put("bootstrap.servers", bootstrap)
    answer = jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils.translateOffsets(
        properties, remote_alias, group, jvm.java.time.Duration.ofSeconds(30)
    )
    return {(at.topic(), at.partition()): answer[at].offset() for at in answer}
