"""Consumer groups of a cluster: who there is, what they committed, and how to set it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import confluent_kafka as kafka

from resources import foreign_groups
from resources.admin import WAIT_S, AdminSession, Answer, patiently
from schemas.errors import GroupActiveError, RequestRefusedError, UnreachableError
from schemas.topic_partition import TopicPartition

# The first group of a fresh cluster waits for `__consumer_offsets` to be made. librdkafka 2.16
# asks three times within 0.4 s who coordinates a group, and then lets the request wait for nothing
# until its time is over: so the first ones are short.
TRIES_S = (1.0, 2.0, 4.0, 8.0)

# What a group's coordinator says while it is being chosen or is loading.
COORDINATOR_MOVES = (
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
)

UNSTABLE = "UNSTABLE_OFFSET_COMMIT"

Committed = dict[TopicPartition, tuple[int, str] | None]


def listed(admin: AdminSession) -> dict[str, str]:
    """Return the state of every consumer group by its id."""
    future = admin.client.list_consumer_groups(request_timeout=WAIT_S)
    found = admin.answer(future, "list its consumer groups")
    return {
        group.group_id: "UNKNOWN" if group.state is None else group.state.name
        for group in found.valid
    }


def all_committed(admin: AdminSession, group: str) -> dict[TopicPartition, int]:
    """Return the next offset to read of every partition that *group* has committed."""
    found = _coordinated(partial(_ask, admin, group, None, False))
    return {partition: offset for partition, (offset, _) in found.items()}


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
    ask = partial(_ask, admin, group, partitions, require_stable)
    found = patiently(lambda: _coordinated(ask), codes=(UNSTABLE,), within_s=WAIT_S)
    return {
        # The client ends metadata that it writes with a NUL byte.
        partition: (held[0], held[1].rstrip(b"\0").decode(errors="replace")) if held else None
        for partition in partitions
        for held in [found.get(partition)]
    }


def commit(
    admin: AdminSession, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]
) -> None:
    """Set the offsets of *group*. Raises GroupActiveError where the group has members."""
    if not offsets:
        return
    wanted = kafka.ConsumerGroupTopicPartitions(
        group,
        [
            kafka.TopicPartition(each.topic, each.partition, offset, metadata)
            for each, (offset, metadata) in offsets.items()
        ],
    )
    what = f"set offsets of group {group}"

    def ask(timeout_s: float) -> None:
        futures = admin.client.alter_consumer_group_offsets([wanted], request_timeout=timeout_s)
        _check(admin, admin.answer(futures[group], what, timeout_s), what)

    try:
        _coordinated(ask)
    except RequestRefusedError as refused:
        # To set offsets without being a member is what Kafka refuses in these words.
        if refused.code in {"UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP"}:
            raise GroupActiveError(admin.alias, group) from None
        raise


def _coordinated(ask: Callable[[float], Answer]) -> Answer:
    """Return what *ask* returns, given seconds, once the group has a coordinator that answers."""
    for timeout_s in TRIES_S[:-1]:
        try:
            return _patient(ask, timeout_s)
        except UnreachableError:
            continue
        except RequestRefusedError as refused:
            if refused.code not in COORDINATOR_MOVES:
                raise
    return _patient(ask, TRIES_S[-1])


def _patient(ask: Callable[[float], Answer], timeout_s: float) -> Answer:
    return patiently(lambda: ask(timeout_s), codes=COORDINATOR_MOVES, within_s=timeout_s)


def _ask(
    admin: AdminSession,
    group: str,
    partitions: Collection[TopicPartition] | None,
    require_stable: bool,
    timeout_s: float,
) -> dict[TopicPartition, tuple[int, bytes]]:
    with admin.asking(f"tell the offsets of group {group}"):
        return foreign_groups.committed_offsets(
            admin.settings, group, timeout_s, partitions, require_stable=require_stable
        )


def _check(admin: AdminSession, answer: kafka.ConsumerGroupTopicPartitions, what: str) -> None:
    """Raise the first error that *answer* holds for one of its partitions."""
    for each in answer.topic_partitions or ():
        if each.error is not None:
            raise admin.explained(each.error, f"{what}, {each.topic}[{each.partition}]")
