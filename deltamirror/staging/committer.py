"""Commit what a tick staged, with the new frontiers, and append its segments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from deltamirror.context import MirrorContext
from deltamirror.staging.segment_index import SegmentIndex
from deltamirror.staging.source_topics import SourceTopics
from pipeline.staging.gaps import classify_gaps, frontier_after
from pipeline.staging.stage import SlotStageResult
from schemas.errors import StalePlanError
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.stats import ValueStats
from schemas.staging.frontier import Frontier, base_id
from schemas.staging.segment import Segment

log = logging.getLogger(__name__)

SEALED_APP_ID = "records"
"""The mark of `segments`: the version of `records` up to which it is sealed."""


class Committer:
    """The tables `records` and `segments` of source cluster *alias*, and its frontiers.

    Only the holder of the staging lease uses it. Not thread-safe.
    """

    def __init__(self, context: MirrorContext, alias: str, sights: SourceTopics) -> None:
        self._context, self._alias, self._source_topics = context, alias, sights
        self.records = context.lake.records(alias)
        self._segments = context.lake.segments(alias)
        self._segment_index = SegmentIndex(self._segments)
        self._known_version = -1
        self.frontiers: dict[TopicPartition, Frontier] = {}

    @property
    def next_sequence(self) -> int:
        """Return the sequence of the files that the next commit adds."""
        return self.records.version + 1

    def learn(self) -> None:
        """Seal what was committed and not sealed, then read the frontiers.

        Raises LakeError where the two tables contradict each other.
        """
        self.records.refresh()
        self._segments.refresh()
        sealed = self._segments.txn_version(SEALED_APP_ID) or 0
        for version, segments in self.records.segments_since(sealed):
            self.seal(version, segments)
        self._segment_index.refresh()
        self.frontiers = dict(self._segment_index.chains.frontiers)
        self.records.check_index(
            self._segments.txn_version(SEALED_APP_ID) or 0, self.frontiers.values()
        )
        self._known_version = self.records.version

    def commit(
        self, staged: Sequence[SlotStageResult]
    ) -> tuple[list[Segment], tuple[ValueStats, ...]]:
        """Commit files and frontiers of the slots whose topics are still the planned ones.

        Return the segments, and the timestamps of each one's records.
        """
        staged = self._drop_recreated_topics(staged)
        segments = self._explain_gaps([segment for slot in staged for segment in slot.segments])
        if not segments:
            return [], ()
        files = [slot.file for slot in staged if slot.file is not None]
        expected = {r.partition: r.planned_start for slot in staged for r in slot.planned}
        known = self._known_version
        self._commit_and_seal(
            segments,
            lambda: self.records.stage(files, segments, expected, known_version=known),
        )
        return segments, tuple(stamps for slot in staged for stamps in slot.stamps)

    def settle(self, segments: Sequence[Segment], extra_txn_versions: Mapping[str, int]) -> None:
        """Commit *segments* that hold no record, with the marks *extra_txn_versions*."""
        expected = {s.source: self.records.frontier(s.source) for s in segments}
        self._commit_and_seal(
            segments, lambda: self.records.stage([], segments, expected, extra_txn_versions)
        )

    def seal(self, version: int, segments: Sequence[Segment]) -> None:
        """Append *segments* to the table; doing it twice is doing it once."""
        rows = [{**segment.to_dict(), "version": version} for segment in segments]
        before = self._segments.txn_version(SEALED_APP_ID)
        if before is None or before < version:
            self._segments.append(
                rows, txn_versions={SEALED_APP_ID: version}, expected={SEALED_APP_ID: before}
            )

    def _commit_and_seal(self, segments: Sequence[Segment], commit: Callable[[], int]) -> None:
        """Commit, seal, and remember the frontiers. Raises StalePlanError, having learnt anew."""
        try:
            version = commit()
        except StalePlanError:
            self.learn()
            raise
        self.seal(version, segments)
        self._known_version = version
        for segment in segments:
            after = frontier_after(segment)
            self.frontiers[after.source.topic_partition] = after

    def _drop_recreated_topics(self, staged: Sequence[SlotStageResult]) -> list[SlotStageResult]:
        """Return the slots none of whose topics was made anew while they were read.

        A slot's file holds all of its ranges: if one of them may be of another topic, the file
        is not committed and its ranges are planned anew.
        """
        names = {s.topic for slot in staged for s in slot.segments}
        now = self._context.cluster(self._alias).topics(names) if names else {}
        same = []
        for slot in staged:
            changed = [
                s
                for s in slot.segments
                if s.topic not in now or now[s.topic].topic_id != base_id(s.topic_id)
            ]
            if changed:
                log.warning(
                    "stage %s %s was re-created while it was read", self._alias, changed[0].source
                )
                self._source_topics.refresh_topics()
            else:
                same.append(slot)
        return same

    def _explain_gaps(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return *segments* with the cause of their gaps, as far as the topics' settings tell it.

        Asked for after the records were read: what was compacted meanwhile is told as such.
        """
        names = {segment.topic for segment in segments if segment.gaps}
        settings = self._context.cluster(self._alias).topic_configs(names) if names else {}
        policies = {name: found.get("cleanup.policy") for name, found in settings.items()}
        return [
            classify_gaps(s, policy.value if (policy := policies.get(s.topic)) else None)
            for s in segments
        ]
