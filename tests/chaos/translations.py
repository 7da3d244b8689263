"""Check against the records that each committed offset is translated to the next record."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from contextlib import closing

from deltamirror.groups.checkpoints import map_index
from pipeline.offset_map.translate import translate
from schemas.kafka.partition import TopicPartition as Partition
from tests.chaos.audit import Log
from tests.chaos.ground import Ground
from tests.chaos.groups import Member, PartitionKey
from tests.support.brokers import committed_offsets
from tests.support.world import FLOW

Logs = Mapping[PartitionKey, tuple[Log, Log]]


def is_exact(source: Log, target: Log, committed: int, resumes_at: int | None) -> bool:
    """Return whether the records after *committed* on the source are those after *resumes_at*.

    The auditor checks that both logs have the same records. So the number of records that are left
    must be the same on both sides, and the next record must be the same.
    """
    here = bisect_left(source.offsets, committed)
    if resumes_at is None:
        return not target.offsets
    there = bisect_left(target.offsets, resumes_at)
    return source.contents[here : here + 1] == target.contents[there : there + 1] and (
        len(source.offsets) - here == len(target.offsets) - there
    )


def every_commit(ground: Ground, members: Iterable[Member], logs: Logs) -> tuple[int, list[str]]:
    """Translate each commit of a group; return their number, and a line for each wrong one."""
    with closing(ground.world.context) as context:
        offset_map = map_index(context, context.config.flow(FLOW))
    checked, wrong = 0, []
    for member in members:
        for topic_partition, offsets in sorted(member.committed.items()):
            mapped_incarnation = offset_map.mapped_incarnation(Partition(*topic_partition))
            for committed in sorted(offsets):
                checked += 1
                resumes_at = (
                    translate(committed, mapped_incarnation.runs) if mapped_incarnation else None
                )
                if not is_exact(*logs[topic_partition], committed, resumes_at):
                    wrong.append(f"{member.group} {topic_partition} {committed} -> {resumes_at}")
    return checked, wrong


def newest_commits(ground: Ground, groups: Iterable[str], logs: Logs) -> tuple[int, list[str]]:
    """Do the same with `deltamirror translate --group` for the current commits of each group."""
    world = ground.world
    world.cli("groups", "snapshot")
    checked, wrong = 0, []
    for group in groups:
        expected = committed_offsets(ground.source.bootstrap, group)
        answer = world.answer("translate", "--flow", FLOW, "--group", group)
        found = {(e["topic"], e["partition"]): e for e in answer.get("partitions", ())}
        for topic_partition, committed in sorted(expected.items()):
            checked += 1
            each = found.get(topic_partition)
            if each is None or each["upstream_offset"] != committed:
                wrong.append(
                    f"{group} {topic_partition} {committed}: translate --group says {each}"
                )
            elif not is_exact(*logs[topic_partition], committed, each["downstream_offset"]):
                wrong.append(
                    f"{group} {topic_partition} {committed} -> {each['downstream_offset']}"
                )
    return checked, wrong
