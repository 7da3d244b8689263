"""List the consumer groups of a cluster; read and set their committed offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import KafkaError

from resources.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession, Answer
from resources.librdkafka.group_offsets_client import CommittedOffsets, GroupClient
from schemas.errors.base import GroupActiveError, RequestRefusedError
from schemas.errors.environment import UnreachableError
from schemas.kafka.acl import Permission
from schemas.kafka.partition import TopicPartition

# How long a group may be without a coordinator: the first group of a fresh cluster waits until
# `__consumer_offsets` is created.
COORDINATOR_TIMEOUT_S = 15.0

# librdkafka 2.16 looks up the coordinator three times within 0.4 s, and then waits without another
# look-up until the request times out. So the first attempt is short, and each next one twice as
# long.
FIRST_ATTEMPT_TIMEOUT_S = 0.5

# After so many seconds of NOT_COORDINATOR, the client has cached the wrong coordinator and is
# renewed (see resources/librdkafka/group_offsets_client.py).
NOT_COORDINATOR = "NOT_COORDINATOR"
NOT_COORDINATOR_TIMEOUT_S = 1.0

UNSTABLE_OFFSET_COMMIT = "UNSTABLE_OFFSET_COMMIT"

# The coordinator is being elected or is loading, or offsets are in an open transaction.
RETRIABLE_CODES = (
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    NOT_COORDINATOR,
    UNSTABLE_OFFSET_COMMIT,
)

UNKNOWN_STATE = "UNKNOWN"  # if the client cannot read it; the word is confluent-kafka's


class GroupAdmin:
    """The requests of `KafkaCluster` about consumer groups and their committed offsets."""

    _admin: AdminSession

    def groups(self) -> dict[str, str]:
        """Return the state (`STABLE`, `EMPTY`, ...) of every consumer and Streams group by its id.

        It is UNKNOWN if the client cannot request it, as for Streams groups (KIP-1071). Share
        groups are listed as UNKNOWN too; they have no committed offsets.
        """
        future = self._admin.client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S)
        found = self._admin.wait_result(future, "list its consumer groups")
        return dict.fromkeys(self._groups_of_unknown_kinds(), UNKNOWN_STATE) | {
            group.group_id: UNKNOWN_STATE if group.state is None else group.state.name
            for group in found.valid
        }

    def _groups_of_unknown_kinds(self) -> list[str]:
        """Return the ids of Streams groups and share groups, which `list_consumer_groups` omits.

        The older request lists them without a protocol type. It returns no group at all if one
        broker does not respond. Then these groups are missing until the next listing.
        """
        try:
            with self._admin.converted_errors("list its groups"):
                found = self._admin.client.list_groups(timeout=REQUEST_TIMEOUT_S)
        except RequestRefusedError as refused:
            if refused.code != KafkaError(KafkaError._PARTIAL).name():
                raise
            return []
        return [str(each.id) for each in found if not each.protocol_type]

    def worker_state(self, group: str) -> str:
        """Return the state of a group of Connect workers, or DEAD if it does not exist.

        Connect's workers are not consumers, so `groups` does not list their groups.
        """
        with self._admin.converted_errors(f"return the state of group {group}"):
            found = self._admin.client.list_groups(group, timeout=REQUEST_TIMEOUT_S)
        return next((str(each.state).upper() for each in found if each.id == group), "DEAD")

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return all committed offsets of *group*: the next ones to read."""
        return {each: offset for each, (offset, _) in self.group_commits(group).items()}

    def group_commits(self, group: str) -> CommittedOffsets:
        """Return all committed offsets of *group*, each with its metadata."""
        return self._read_commits(group, None, require_stable=False)

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition], require_stable: bool = True
    ) -> dict[TopicPartition, tuple[int, str] | None]:
        """Return committed offset and metadata of our own *group*, or None if it has none.

        With *require_stable* this waits up to 10 s for offsets in an open transaction.
        """
        found = self._read_commits(group, partitions, require_stable) if partitions else {}
        return {partition: found.get(partition) for partition in partitions}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Set the committed offsets of *group*, each with its metadata; create it if it is missing.

        Raises GroupActiveError if the group has members.
        """
        if not offsets:
            return
        try:
            self._call_coordinator(
                f"set offsets of group {group}",
                Permission("Read", "group", group),
                lambda client, timeout_s: client.alter_offsets(group, offsets, timeout_s),
            )
        except RequestRefusedError as refused:
            # Kafka's error codes when a client that is no member sets offsets of an active group.
            if refused.code in {"UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP"}:
                raise GroupActiveError(group, alias=self._admin.alias) from None
            raise

    def _read_commits(
        self, group: str, partitions: Collection[TopicPartition] | None, require_stable: bool
    ) -> CommittedOffsets:
        return self._call_coordinator(
            f"return the offsets of group {group}",
            Permission("Describe", "group", group),
            lambda client, timeout_s: client.committed_offsets(
                group, partitions, timeout_s, require_stable=require_stable
            ),
        )

    def _call_coordinator(
        self, what: str, needed: Permission, request: Callable[[GroupClient, float], Answer]
    ) -> Answer:
        """Call *request* with a client and a timeout in seconds until the coordinator responds.

        Raises the last attempt's error after COORDINATOR_TIMEOUT_S, or REQUEST_TIMEOUT_S if it is
        UNSTABLE_OFFSET_COMMIT.
        """
        started = time.monotonic()
        try_s, pause_s = FIRST_ATTEMPT_TIMEOUT_S, 0.02
        moved_at = started + NOT_COORDINATOR_TIMEOUT_S
        while True:
            left_s = started + COORDINATOR_TIMEOUT_S - time.monotonic()
            client = self._admin.group_client
            try:
                with self._admin.converted_errors(what, needed):
                    return request(client, max(0.1, min(try_s, left_s)))
            except UnreachableError:
                self._admin.renew_group_client(client)
                if left_s <= try_s:
                    raise
                try_s *= 2
            except RequestRefusedError as refused:
                is_unstable = refused.code == UNSTABLE_OFFSET_COMMIT
                least_s = COORDINATOR_TIMEOUT_S - REQUEST_TIMEOUT_S if is_unstable else 0.0
                if refused.code not in RETRIABLE_CODES or left_s <= least_s:
                    raise
                if refused.code == NOT_COORDINATOR and time.monotonic() >= moved_at:
                    self._admin.renew_group_client(client)
                    moved_at += NOT_COORDINATOR_TIMEOUT_S
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.25)
