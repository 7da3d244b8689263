"""List the consumer groups of a cluster; read and set their committed offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import KafkaError

from resources.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession, Answer, retry_until
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

# Error codes of a coordinator that is being elected or is loading. After
# NOT_COORDINATOR_TIMEOUT_S of NOT_COORDINATOR, the client has cached the wrong coordinator and is
# renewed (see resources/librdkafka/group_offsets_client.py).
NOT_COORDINATOR = "NOT_COORDINATOR"
RETRIABLE_COORDINATOR_CODES = (
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    NOT_COORDINATOR,
)
NOT_COORDINATOR_TIMEOUT_S = 1.0

UNSTABLE_OFFSET_COMMIT = "UNSTABLE_OFFSET_COMMIT"
PARTIAL = KafkaError(KafkaError._PARTIAL).name()

UNKNOWN_STATE = "UNKNOWN"
"""State of a group whose state the client cannot read. The word is confluent-kafka's."""

PartitionCommits = dict[TopicPartition, tuple[int, str] | None]


def list_groups(admin: AdminSession) -> dict[str, str]:
    """Return the state of every group by its id.

    The state of a Streams group (KIP-1071) is UNKNOWN, because the client cannot request it. Share
    groups are listed as UNKNOWN too; they have no committed offsets.
    """
    future = admin.client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S)
    found = admin.wait_result(future, "list its consumer groups")
    return dict.fromkeys(_of_unknown_kinds(admin), UNKNOWN_STATE) | {
        group.group_id: UNKNOWN_STATE if group.state is None else group.state.name
        for group in found.valid
    }


def _of_unknown_kinds(admin: AdminSession) -> list[str]:
    """Return the ids of Streams groups and share groups, which `list_consumer_groups` leaves out.

    The older request lists them without a protocol type. It returns no group at all if one broker
    does not respond. Then these groups are missing until the next listing.
    """
    try:
        with admin.converted_errors("list its groups"):
            found = admin.client.list_groups(timeout=REQUEST_TIMEOUT_S)
    except RequestRefusedError as refused:
        if refused.code != PARTIAL:
            raise
        return []
    return [str(each.id) for each in found if not each.protocol_type]


def worker_state(admin: AdminSession, group: str) -> str:
    """Return the state of *group*, whose protocol may be any; DEAD if it does not exist.

    Connect's workers are not consumers, so `list_groups` here does not list their groups.
    """
    with admin.converted_errors(f"return the state of group {group}"):
        found = admin.client.list_groups(group, timeout=REQUEST_TIMEOUT_S)
    return next((str(each.state).upper() for each in found if each.id == group), "DEAD")


def list_committed_offsets(admin: AdminSession, group: str) -> CommittedOffsets:
    """Return next offset to read and metadata of every partition that *group* has committed."""
    return _call_coordinator(
        admin,
        f"return the offsets of group {group}",
        (Permission("Describe", "group", group),),
        lambda client, in_s: client.committed_offsets(group, None, in_s),
    )


def committed_offsets(
    admin: AdminSession,
    group: str,
    partitions: Collection[TopicPartition],
    *,
    require_stable: bool,
) -> PartitionCommits:
    """Return offset and metadata of each of *partitions*; None if *group* has no commit there."""
    if not partitions:
        return {}

    def request(client: GroupClient, in_s: float) -> CommittedOffsets:
        return client.committed_offsets(group, partitions, in_s, require_stable=require_stable)

    what, needs = f"return the offsets of group {group}", (Permission("Describe", "group", group),)
    found = retry_until(
        lambda: _call_coordinator(admin, what, needs, request),
        codes=(UNSTABLE_OFFSET_COMMIT,),
        within_s=REQUEST_TIMEOUT_S,
    )
    return {partition: found.get(partition) for partition in partitions}


def alter_offsets(
    admin: AdminSession, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]
) -> None:
    """Set the offsets of *group*. Raises GroupActiveError if the group has members."""
    if not offsets:
        return
    what, needs = f"set offsets of group {group}", (Permission("Read", "group", group),)
    try:
        _call_coordinator(
            admin, what, needs, lambda client, in_s: client.alter_offsets(group, offsets, in_s)
        )
    except RequestRefusedError as refused:
        # Kafka's error codes when a client that is no member sets offsets of an active group.
        if refused.code in {"UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP"}:
            raise GroupActiveError(group, alias=admin.alias) from None
        raise


def _call_coordinator(
    admin: AdminSession,
    what: str,
    needs: tuple[Permission, ...],
    request: Callable[[GroupClient, float], Answer],
) -> Answer:
    """Call *request* with a client and a timeout in seconds until the coordinator responds.

    Raises the error of the last attempt after COORDINATOR_TIMEOUT_S.
    """
    started = time.monotonic()
    try_s, pause_s, moved_at = FIRST_ATTEMPT_TIMEOUT_S, 0.02, started + NOT_COORDINATOR_TIMEOUT_S
    while True:
        left_s = started + COORDINATOR_TIMEOUT_S - time.monotonic()
        client = admin.group_client
        try:
            with admin.converted_errors(what, *needs):
                return request(client, max(0.1, min(try_s, left_s)))
        except UnreachableError:
            admin.renew_group_client(client)
            if left_s <= try_s:
                raise
            try_s *= 2
        except RequestRefusedError as refused:
            if refused.code not in RETRIABLE_COORDINATOR_CODES or left_s <= 0:
                raise
            if refused.code == NOT_COORDINATOR and time.monotonic() >= moved_at:
                admin.renew_group_client(client)
                moved_at += NOT_COORDINATOR_TIMEOUT_S
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.25)
