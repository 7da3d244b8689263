"""Consumer groups of a cluster: who there is, what they committed, and how to set it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from resources.kafka.admin_session import WAIT_S, AdminSession, Answer, patiently
from resources.kafka.group_offsets_client import GroupClient, Offsets
from schemas.errors import GroupActiveError, RequestRefusedError, UnreachableError
from schemas.kafka.acl import Permission
from schemas.kafka.partition import TopicPartition

# How long a group may be without a coordinator: the first of a fresh cluster waits for
# `__consumer_offsets` to be made.
COORDINATOR_S = 15.0

# librdkafka 2.16 asks three times within 0.4 s who coordinates a group, and then lets the request
# wait for nothing until its time is over: so the first one is short, and each next one twice that.
FIRST_TRY_S = 0.5

# What a group's coordinator says while it is being chosen or is loading, and how long it may say
# that it is none before the client is taken to ask the wrong one (see group_client.py).
MOVED = "NOT_COORDINATOR"
COORDINATOR_MOVES = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", MOVED)
MOVED_S = 1.0

UNSTABLE = "UNSTABLE_OFFSET_COMMIT"

UNKNOWN = "UNKNOWN"
"""The state of a group that the client cannot tell, in its own word."""

Committed = dict[TopicPartition, tuple[int, str] | None]


def listed(admin: AdminSession) -> dict[str, str]:
    """Return the state of every consumer group and Streams group by its id.

    Of a Streams group (KIP-1071) it is UNKNOWN: the client cannot ask for it. So are those of
    share groups, which have no committed offsets.
    """
    future = admin.client.list_consumer_groups(request_timeout=WAIT_S)
    found = admin.answer(future, "list its consumer groups")
    with admin.asking("list its groups"):
        kinds = admin.groups.kinds(WAIT_S)
    return {group: UNKNOWN for group, kind in kinds.items() if not kind} | {
        group.group_id: UNKNOWN if group.state is None else group.state.name
        for group in found.valid
    }


def worker_state(admin: AdminSession, group: str) -> str:
    """Return the state of *group*, of whatever protocol; DEAD where it is not there.

    Connect's workers are no consumers: `listed` does not know them.
    """
    with admin.asking(f"tell the state of group {group}"):
        found = admin.client.list_groups(group, timeout=WAIT_S)
    return next((str(each.state).upper() for each in found if each.id == group), "DEAD")


def all_committed(admin: AdminSession, group: str) -> Offsets:
    """Return next offset to read and metadata of every partition that *group* has committed."""
    return _coordinated(
        admin,
        f"tell the offsets of group {group}",
        (Permission("Describe", "group", group),),
        lambda client, in_s: client.committed(group, None, in_s),
    )


def committed(
    admin: AdminSession,
    group: str,
    partitions: Collection[TopicPartition],
    *,
    require_stable: bool,
) -> Committed:
    """Return offset and metadata of each of *partitions*; None: *group* committed nothing."""
    if not partitions:
        return {}

    def ask(client: GroupClient, in_s: float) -> Offsets:
        return client.committed(group, partitions, in_s, require_stable=require_stable)

    what, needs = f"tell the offsets of group {group}", (Permission("Describe", "group", group),)
    found = patiently(
        lambda: _coordinated(admin, what, needs, ask), codes=(UNSTABLE,), within_s=WAIT_S
    )
    return {partition: found.get(partition) for partition in partitions}


def commit(
    admin: AdminSession, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]
) -> None:
    """Set the offsets of *group*. Raises GroupActiveError where the group has members."""
    if not offsets:
        return
    what, needs = f"set offsets of group {group}", (Permission("Read", "group", group),)
    try:
        _coordinated(admin, what, needs, lambda client, in_s: client.commit(group, offsets, in_s))
    except RequestRefusedError as refused:
        # To set offsets without being a member is what Kafka refuses in these words.
        if refused.code in {"UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP"}:
            raise GroupActiveError(admin.alias, group) from None
        raise


def _coordinated(
    admin: AdminSession,
    what: str,
    needs: tuple[Permission, ...],
    ask: Callable[[GroupClient, float], Answer],
) -> Answer:
    """Return what *ask* returns, given seconds, once the group has a coordinator that answers.

    Raises what the last try raised when COORDINATOR_S are over.
    """
    began = time.monotonic()
    try_s, pause_s, moved_at = FIRST_TRY_S, 0.02, began + MOVED_S
    while True:
        left_s = began + COORDINATOR_S - time.monotonic()
        client = admin.groups
        try:
            with admin.asking(what, *needs):
                return ask(client, max(0.1, min(try_s, left_s)))
        except UnreachableError:
            admin.renew_groups(client)
            if left_s <= try_s:
                raise
            try_s *= 2
        except RequestRefusedError as refused:
            if refused.code not in COORDINATOR_MOVES or left_s <= 0:
                raise
            if refused.code == MOVED and time.monotonic() >= moved_at:
                admin.renew_groups(client)
                moved_at += MOVED_S
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.25)
