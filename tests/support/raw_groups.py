"""Join groups for which there is no client here: Kafka's Java classes encode the raw requests.

Only Kafka Streams joins Streams groups (KIP-1071), and the brokers' jars do not contain it.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from py4j.java_gateway import JavaGateway

from resources.kafka.cluster import KafkaCluster
from tests.support.world import until

JOIN, LEAVE = 0, -1
OLD = 3  # a version of TxnOffsetCommit in which the client adds the partition itself
MESSAGES, REQUESTS = "org.apache.kafka.common.message", "org.apache.kafka.common.requests"


class RawClient:
    """A connection to the broker at *bootstrap*, the coordinator of *group* among others."""

    def __init__(self, gateway: JavaGateway, bootstrap: str, group: str) -> None:
        self._gateway, self._group = gateway, group
        # In a new cluster a group has a coordinator only after the first request for it.
        KafkaCluster("raw", {"bootstrap.servers": bootstrap}).group_offsets(group)
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _answer(self, request: Any) -> Any:
        """Send *request* and return the answer to it."""
        header = self._new(
            f"{REQUESTS}.RequestHeader", request.apiKey(), request.version(), "raw", 1
        )
        utils = self._gateway.jvm.org.apache.kafka.common.utils.Utils
        payload = bytes(utils.toArray(request.serializeWithHeader(header)))
        self._socket.sendall(struct.pack(">i", len(payload)) + payload)
        (length,) = struct.unpack(">i", self._read(4))
        buffer = self._gateway.jvm.java.nio.ByteBuffer.wrap(self._read(length))
        responses = self._gateway.jvm.org.apache.kafka.common.requests.AbstractResponse
        return responses.parseResponse(buffer, header)

    def _read(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            more = self._socket.recv(length - len(found))
            assert more, "the broker closed the connection"
            found += more
        return found

    def _new(self, name: str, *arguments: Any) -> Any:
        # Also nested classes, whose names have a dollar sign.
        made: Any = self._gateway.jvm
        for part in name.split("."):
            made = getattr(made, part)
        return made(*arguments)

    def _list(self, *items: Any) -> Any:
        made = self._gateway.jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made


class RawMember(RawClient):
    """A member of a group of *kind*, `Streams` or `Share`, that reads *topic* of a broker."""

    def __init__(
        self, gateway: JavaGateway, bootstrap: str, kind: str, group: str, topic: str
    ) -> None:
        super().__init__(gateway, bootstrap, group)
        self._kind, self._topic = kind, topic
        self._id = gateway.jvm.org.apache.kafka.common.Uuid.randomUuid().toString()

    def join(self) -> None:
        """Become a member, until the session times out; create the group if it is new."""
        until(lambda: self._heartbeat(JOIN) == 0, f"{self._group} has a coordinator and a member")

    def leave(self) -> None:
        """Leave the group, and close the connection."""
        assert self._heartbeat(LEAVE) == 0
        self.close()

    def _heartbeat(self, epoch: int) -> int:
        """Return the error code of the broker's answer to a heartbeat; 0 means no error."""
        data = self._new(f"{MESSAGES}.{self._kind}GroupHeartbeatRequestData")
        data.setGroupId(self._group).setMemberId(self._id).setMemberEpoch(epoch)
        if epoch == JOIN and self._kind == "Share":
            data.setSubscribedTopicNames(self._list(self._topic))
        elif epoch == JOIN:
            tasks = self._list()
            data.setTopology(self._topology()).setProcessId("p").setRebalanceTimeoutMs(30_000)
            data.setActiveTasks(tasks).setStandbyTasks(tasks).setWarmupTasks(tasks)
        answer = self._answer(
            self._new(f"{REQUESTS}.{self._kind}GroupHeartbeatRequest$Builder", data).build()
        )
        return int(answer.data().errorCode())

    def _topology(self) -> Any:
        messages = f"{MESSAGES}.StreamsGroupHeartbeatRequestData"
        part = self._new(f"{messages}$Subtopology")
        part.setSubtopologyId("0").setSourceTopics(self._list(self._topic))
        return self._new(f"{messages}$Topology").setEpoch(1).setSubtopologies(self._list(part))


class RawTransaction(RawClient):
    """Progress of a transaction that has ended, which a broker accepts too late."""

    def leave_hanging(self, transactional_id: str, topic: str, partition: int) -> None:
        """Commit an offset of a transaction of *transactional_id* that gets no marker."""
        messages = f"{MESSAGES}.TxnOffsetCommitRequestData"
        producer_id, epoch = self._begin(transactional_id)
        offset_commit = self._new(f"{messages}$TxnOffsetCommitRequestPartition")
        offset_commit.setPartitionIndex(partition).setCommittedOffset(1).setCommittedMetadata(
            "late"
        )
        answers = self._new(f"{messages}$TxnOffsetCommitRequestTopic")
        answers.setName(topic).setPartitions(self._list(offset_commit))
        data = self._new(messages).setTransactionalId(transactional_id).setGroupId(self._group)
        data.setProducerId(producer_id).setProducerEpoch(epoch).setTopics(self._list(answers))
        answer = self._answer(self._new(f"{REQUESTS}.TxnOffsetCommitRequest", data, OLD))
        assert [str(error) for error in answer.errorCounts()] == ["NONE"], answer.toString()

    def _begin(self, transactional_id: str) -> tuple[int, int]:
        data = self._new(f"{MESSAGES}.InitProducerIdRequestData")
        data.setTransactionalId(transactional_id).setTransactionTimeoutMs(60_000)
        request = self._new(f"{REQUESTS}.InitProducerIdRequest$Builder", data).build()
        answers: list[Any] = []

        def is_told() -> bool:
            answers[:] = [self._answer(request).data()]
            return bool(answers[0].errorCode() == 0)

        until(is_told, f"{transactional_id} has a producer's id")
        return int(answers[0].producerId()), int(answers[0].producerEpoch())
