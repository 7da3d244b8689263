"""Commit the files of a tick with the new frontiers, and seal their segments later."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from deltamirror.context import MirrorContext
from deltamirror.staging.segment_index import SegmentIndex, last_only
from deltamirror.staging.source_topics import SourceTopics
from pipeline.staging.gaps import classify_gaps, frontier_after
from pipeline.staging.stage import StageResult
from schemas.errors.lake import StalePlanError
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.stats import ValueStats
from schemas.staging.frontier import Frontier, base_id
from schemas.staging.segment import Segment

log = logging.getLogger(__name__)


class Committer:
    """Write the tables `records` and `segments` of source cluster *alias*; know its frontiers.

    A batch is committed to `records`. Its segments are in the commit's metadata; `seal` appends
    those of many commits to `segments` at once. Use it only while the
    staging lease is held. Not thread-safe.
    """

    def __init__(self, context: MirrorContext, alias: str, source_topics: SourceTopics) -> None:
        self._context, self._alias, self._source_topics = context, alias, source_topics
        self.records = context.lake.records(alias)
        self._segments = context.lake.segments(alias)
        self._segment_index = SegmentIndex(self._segments, last_only)
        self._known_version = -1
        self._sealed_at = time.monotonic()
        self.frontiers: dict[TopicPartition, Frontier] = {}

    @property
    def next_sequence(self) -> int:
        """Return the sequence of the files that the next commit adds."""
        return self.records.version + 1

    def load(self) -> None:
        """Seal unsealed commits, then read the frontiers. Raises LakeError if tables contradict."""
        self.records.refresh()
        self.seal()
        self._segment_index.refresh()
        self.frontiers = dict(self._segment_index.frontiers)
        self.records.check_index(self._segments.sealed_version, self.frontiers.values())
        self._known_version = self.records.version

    def commit(self, staged: Sequence[StageResult]) -> tuple[list[Segment], tuple[ValueStats, ...]]:
        """Commit the files and frontiers of the results of which no topic was re-created.

        Return the segments, and the timestamps of each segment's records in the same order.
        Raises StalePlanError if another process moved a frontier, with nothing committed.
        """
        staged = self._drop_recreated_topics(staged)
        segments = self._explain_gaps([segment for each in staged for segment in each.segments])
        if not segments:
            return [], ()
        files = [each.file for each in staged if each.file is not None]
        expected = {r.partition: r.planned_start for each in staged for r in each.planned}
        known = self._known_version
        self._commit(
            segments, lambda: self.records.stage(files, segments, expected, known_version=known)
        )
        return segments, tuple(stamps for each in staged for stamps in each.stamps)

    def commit_empty(
        self, segments: Sequence[Segment], extra_txn_versions: Mapping[str, int]
    ) -> None:
        """Commit *segments* without records and extra txn versions. Raises StalePlanError."""
        expected = {s.source: self.records.frontier(s.source) for s in segments}
        self._commit(
            segments, lambda: self.records.stage([], segments, expected, extra_txn_versions)
        )

    def seal(self) -> None:
        """Append the segments of all commits to `segments`. Raises StalePlanError, LakeError."""
        self._segments.seal()
        self._sealed_at = time.monotonic()

    def seal_if_due(self) -> None:
        """Call `seal` if the last call was `Timings.seal_interval_s` ago."""
        if time.monotonic() - self._sealed_at >= self._context.timings.seal_interval_s:
            self.seal()

    def _commit(self, segments: Sequence[Segment], commit: Callable[[], int]) -> None:
        """Commit, and remember the frontiers; load them again before StalePlanError."""
        try:
            version = commit()
        except StalePlanError:
            self.load()
            raise
        self._known_version = version
        for segment in segments:
            after = frontier_after(segment)
            self.frontiers[after.source.topic_partition] = after

    def _drop_recreated_topics(self, staged: Sequence[StageResult]) -> list[StageResult]:
        """Return the results of which no topic was re-created while it was read."""
        # A file holds all ranges of its result, so all of them are planned again.
        names = {s.topic for each in staged for s in each.segments}
        now = self._context.cluster(self._alias).topics(names) if names else {}
        ids = {name: topic.topic_id for name, topic in now.items()}
        unchanged = []
        for each in staged:
            changed = [s.source for s in each.segments if ids.get(s.topic) != base_id(s.topic_id)]
            if changed:
                log.warning("stage %s %s was re-created while it was read", self._alias, changed[0])
                self._source_topics.refresh_topics()
            else:
                unchanged.append(each)
        return unchanged

    def _explain_gaps(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return *segments* with the causes of gaps that their topic's cleanup.policy allows."""
        # It is read after the records: compaction may have begun while they were read.
        names = {segment.topic for segment in segments if segment.gaps}
        configs = self._context.cluster(self._alias).topic_configs(names) if names else {}
        policies = {name: found.get("cleanup.policy") for name, found in configs.items()}
        return [
            classify_gaps(s, policy.value if (policy := policies.get(s.topic)) else None)
            for s in segments
        ]
