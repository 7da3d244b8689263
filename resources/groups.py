"""Consumer groups of a cluster: who there is, what they committed, and how to set it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import confluent_kafka as kafka

from resources import foreign_groups
from resources.admin import COORDINATOR_MOVES, WAIT_S, AdminSession, patiently
from schemas.errors import GroupActiveError, RequestRefusedError
from schemas.topic_partition import TopicPartition

# The first group of a fresh cluster waits for `__consumer_offsets` to be made.
COORDINATOR_WAIT_S = 15.0
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
    return patiently(
        lambda: _ask_all(admin, group), codes=COORDINATOR_MOVES, within_s=COORDINATOR_WAIT_S
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
    found = patiently(
        lambda: patiently(
            lambda: _ask(admin, group, partitions, require_stable=require_stable),
            codes=(UNSTABLE,),
            within_s=WAIT_S,
        ),
        codes=COORDINATOR_MOVES,
        within_s=COORDINATOR_WAIT_S,
    )
    return {partition: found.get(partition) for partition in partitions}


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

    def ask() -> None:
        futures = admin.client.alter_consumer_group_offsets([wanted], request_timeout=WAIT_S)
        _check(admin, admin.answer(futures[group], what), what)

    try:
        patiently(ask, codes=COORDINATOR_MOVES, within_s=COORDINATOR_WAIT_S)
    except RequestRefusedError as refused:
        # To set offsets without being a member is what Kafka refuses in these words.
        if refused.code in {"UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP"}:
            raise GroupActiveError(admin.alias, group) from None
        raise


def _ask_all(admin: AdminSession, group: str) -> dict[TopicPartition, int]:
    try:
        found = _ask(admin, group, None, require_stable=False)
    except UnicodeDecodeError:
        with admin.asking(f"tell the offsets of group {group}"):
            return foreign_groups.committed_offsets(admin.settings, group, WAIT_S)
    return {partition: held[0] for partition, held in found.items() if held is not None}


def _ask(
    admin: AdminSession,
    group: str,
    partitions: Collection[TopicPartition] | None,
    *,
    require_stable: bool,
) -> Committed:
    asked = None
    if partitions is not None:
        asked = [kafka.TopicPartition(each.topic, each.partition) for each in partitions]
    what = f"tell the offsets of group {group}"
    futures = admin.client.list_consumer_group_offsets(
        [kafka.ConsumerGroupTopicPartitions(group, asked)],
        require_stable=require_stable,
        request_timeout=WAIT_S,
    )
    found = admin.answer(futures[group], what)
    _check(admin, found, what)
    return {
        TopicPartition(each.topic, each.partition): (
            # The client ends metadata that it writes with a NUL byte.
            (each.offset, (each.metadata or "").rstrip("\0")) if each.offset >= 0 else None
        )
        for each in found.topic_partitions or ()
    }


def _check(admin: AdminSession, answer: kafka.ConsumerGroupTopicPartitions, what: str) -> None:
    """Raise the first error that *answer* holds for one of its partitions."""
    for each in answer.topic_partitions or ():
        if each.error is not None:
            raise admin.explained(each.error, f"{what}, {each.topic}[{each.partition}]")
