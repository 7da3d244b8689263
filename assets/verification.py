"""Source, stage and target of each flow compared, record by record, and what that found kept.

Plain reading in this process: the stage is read once, each cluster by one consumer beside it.
Partitions with few records are read together, large ones streamed one after another.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from assets.site import Site
from assets.verification_feeds import Stream, held
from assets.verification_look import (
    Segments,
    SourceSeen,
    TargetSeen,
    look_at_source,
    look_at_target,
    read_segments,
    source_ranges,
    target_lives,
)
from pipeline.compare import Feed
from pipeline.verify import Evidence, StageAudit
from pipeline.verify_target import Life, TargetAudit, TargetView
from resources.reader import RangeReader
from resources.records import RecordsFile
from resources.staged import StagedLog
from schemas.config import FlowConfig
from schemas.errors import DeltamirrorError, LakeError, TopicMissingError
from schemas.offset_range import OffsetRange
from schemas.tables import VERIFICATION
from schemas.topic_partition import SourcePartition, TopicPartition
from schemas.verification import KINDS, FlowFindings, PartitionFindings, Verification
from schemas.watermarks import Watermarks

SIDES = ("source", "staged", "target")

SMALL = (4_096, 2**20)
"""Records and bytes up to which a partition is read together with others."""

TOGETHER = 64
"""Partitions that are read together at most."""


class Reporter(Protocol):
    """Hears how far a comparison is; never lets an error out."""

    def began(self, flow: str, records: int) -> None:
        """Hear that *records* staged records of *flow* are to be compared."""

    def compared(self, flow: str, records: int) -> None:
        """Hear that *records* more were compared."""


class Silent:
    """A reporter that says nothing."""

    def began(self, flow: str, records: int) -> None:
        """Say nothing."""

    def compared(self, flow: str, records: int) -> None:
        """Say nothing."""


def verify(
    site: Site,
    *,
    flows: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    sides: Collection[str] = SIDES,
    reporter: Reporter | None = None,
) -> Verification:
    """Compare what is staged of *flows* (None: all) and source *topics* (None: all).

    *sides*: `source` holds the source against the stage, `staged` the stage against its own
    evidence, `target` the target against the stage. What was found is appended to `verification`.
    Raises ConfigError: an unknown flow; TopicMissingError: nothing of a topic is staged;
    LakeError. Anything else that stands in the way is in the answer.
    """
    chosen = [site.config.flow(name) for name in flows] if flows else list(site.config.flows)
    audits = [_FlowAudit(site, flow, topics, sides, reporter or Silent()) for flow in chosen]
    staged = {each.topic for audit in audits for each in audit.segments}
    for topic in topics or ():
        if topic not in staged:
            raise TopicMissingError(topic, "in the stage of the flows asked for")
    found = Verification([audit.run() for audit in audits])
    for flow, findings in zip(chosen, found.flows, strict=True):
        _keep(site, flow, findings)
    return found


@dataclass
class _Job:
    """One partition: its staged lives, what is read beside them, and the audits that do it."""

    partition: TopicPartition
    found: PartitionFindings
    evidence: dict[str, list[Evidence]]
    kept: dict[str, int]
    sequence: int
    records: int
    size_bytes: int
    source: list[OffsetRange] | None = None
    target: tuple[list[Life], TargetView] | None = None
    target_ranges: list[OffsetRange] = field(default_factory=list)
    stage_audits: dict[str, StageAudit] = field(default_factory=dict)
    target_audit: TargetAudit | None = None

    @property
    def is_small(self) -> bool:
        """Return whether both clusters' records fit into memory beside others."""
        on_target = sum(each.length for each in self.target_ranges)
        return max(self.records, on_target) <= SMALL[0] and self.size_bytes <= SMALL[1]

    def starts(self) -> dict[SourcePartition, int]:
        """Return where reading each staged life begins."""
        return {
            SourcePartition(self.partition.topic, life, self.partition.partition): max(
                evidence[0].start, self.kept[life]
            )
            for life, evidence in self.evidence.items()
        }

    def begin(self, source: Feed, target: Feed, sides: Collection[str]) -> None:
        """Make the audits that *sides* ask for."""
        if {"source", "staged"} & set(sides):
            newest = list(self.evidence)[-1]
            for life, evidence in self.evidence.items():
                self.stage_audits[life] = StageAudit(
                    self.found,
                    evidence,
                    self.kept[life],
                    source if life == newest and self.source is not None else None,
                    is_counted="staged" in sides,
                )
        if self.target is not None:
            self.target_audit = TargetAudit(self.found, *self.target, target)

    def feed(self, life: str, rows: pa.RecordBatch) -> None:
        """Give staged *rows* to the audits; one that fails ends, with its error on record."""
        if (audit := self.stage_audits.get(life)) is not None:
            try:
                audit.feed(rows)
            except DeltamirrorError as error:
                self.found.errors.append(error)
                del self.stage_audits[life]
            self._count(sum(each.records for each in self.stage_audits.values()))
        if self.target_audit is not None:
            try:
                self.target_audit.feed(life, rows)
            except DeltamirrorError as error:
                self._drop_target(error)
            else:
                self._count(self.target_audit.records)

    def finish(self, damage: str) -> None:
        """End the audits; the target's stays while it has extras to explain."""
        if self.target_audit is not None:
            try:
                self.target_audit.finish()
            except DeltamirrorError as error:
                self._drop_target(error)
        # Last: what was found record by record explains a digest that is another one.
        for audit in self.stage_audits.values():
            try:
                audit.finish(damage)
            except DeltamirrorError as error:
                self.found.errors.append(error)

    def _count(self, records: int) -> None:
        self.found.records = max(self.found.records, records)

    def _drop_target(self, error: DeltamirrorError) -> None:
        self.found.errors.append(error)
        self.target_audit = None


class _FlowAudit:
    """The comparison of one flow."""

    def __init__(
        self,
        site: Site,
        flow: FlowConfig,
        topics: Collection[str] | None,
        sides: Collection[str],
        reporter: Reporter,
    ) -> None:
        self._site, self._flow, self._topics = site, flow, topics
        self._sides, self._reporter = sides, reporter
        self._errors: list[DeltamirrorError] = []
        self._damage: list[str] = []
        self._records = site.lake.records(flow.flow.source)
        self._staged = StagedLog(self._records.path)
        clusters = site.config.clusters
        self._source = RangeReader(clusters[flow.flow.source].consumer)
        self._target = RangeReader(clusters[flow.flow.target].consumer)
        self.segments: Segments = read_segments(site, flow, topics)

    def run(self) -> FlowFindings:
        """Compare every partition; return what was found."""
        name = self._flow.flow.name
        if not self.segments:
            return FlowFindings(name)
        source = target = None
        try:
            if "source" in self._sides:
                source = look_at_source(self._site, self._flow, self.segments)
        except DeltamirrorError as error:
            self._errors.append(error)
        try:
            if "target" in self._sides:
                target = look_at_target(self._site, self._flow, self.segments)
        except DeltamirrorError as error:
            self._errors.append(error)
        known = set(self.segments)
        self.segments = read_segments(self._site, self._flow, self._topics)
        self._records.refresh()
        jobs = [
            self._job(partition, rows, source, target)
            for partition, rows in sorted(self.segments.items())
            if partition in known
        ]
        self._reporter.began(name, sum(job.records for job in jobs))
        try:
            files = self._records.files()
            for bundle in _bundles(jobs):
                self._compare(bundle, files)
        finally:
            self._source.close()
            self._target.close()
        return FlowFindings(name, [job.found for job in jobs], self._errors)

    def _job(
        self,
        partition: TopicPartition,
        rows: Sequence[dict[str, Any]],
        source: SourceSeen | None,
        target: TargetSeen | None,
    ) -> _Job:
        evidence: dict[str, list[Evidence]] = {}
        for row in rows:
            each = Evidence(row["start"], row["end"], row["count"], row["digest"])
            evidence.setdefault(row["topic_id"], []).append(each)
        job = _Job(
            partition,
            PartitionFindings(self._flow.flow.name, partition),
            evidence,
            {life: self._kept(partition, life) for life in evidence},
            min(row["sequence"] for row in rows),
            sum(row["count"] for row in rows),
            sum(row["size_bytes"] for row in rows),
        )
        try:
            if source is not None:
                job.source = source_ranges(partition, rows, source)
        except DeltamirrorError as error:
            job.found.errors.append(error)
        try:
            if target is not None:
                job.target = target_lives(partition, list(evidence), target)
        except DeltamirrorError as error:
            job.found.errors.append(error)
        if job.target is not None:
            job.target_ranges = _target_ranges(job.target[1])
        return job

    def _kept(self, partition: TopicPartition, life: str) -> int:
        """Return the first offset that retention has left in the stage."""
        source = SourcePartition(partition.topic, life, partition.partition)
        return self._records.kept_from(source) or 0

    def _compare(self, jobs: Sequence[_Job], files: Sequence[RecordsFile]) -> None:
        """Compare the partitions of one slot in one pass over its files."""
        slot, sequence = jobs[0].partition.slot, min(job.sequence for job in jobs)
        paths = [f.path for f in files if f.slot == slot and f.sequence >= sequence]
        with ExitStack() as stack:
            sources = self._feeds(self._source, {j.partition: j.source or [] for j in jobs}, stack)
            targets = self._feeds(self._target, {j.partition: j.target_ranges for j in jobs}, stack)
            for job in jobs:
                job.begin(sources[job.partition], targets[job.partition], self._sides)
            with _no_collector():
                self._pass(jobs, paths)
        self._explain([job for job in jobs if job.target_audit and job.target_audit.extras], paths)

    def _feeds(
        self,
        reader: RangeReader,
        ranges: Mapping[TopicPartition, Sequence[OffsetRange]],
        stack: ExitStack,
    ) -> dict[TopicPartition, Feed]:
        if len(ranges) > 1 or not any(ranges.values()):
            return {p: Feed(batches) for p, batches in held(reader, ranges).items()}
        ((partition, wanted),) = ranges.items()
        stream = Stream(reader, wanted)
        stack.callback(stream.close)
        return {partition: Feed(iter(stream))}

    def _pass(self, jobs: Sequence[_Job], paths: Sequence[str]) -> None:
        """Give every staged record to its partition's audits, then end them."""
        owners = {job.partition: job for job in jobs}
        wanted = {s: at for job in jobs for s, at in job.starts().items()}
        self._damage = []
        for source, rows in self._rows(paths, wanted):
            owners[source.plain].feed(source.topic_id, rows)
            self._reporter.compared(self._flow.flow.name, rows.num_rows)
        for job in jobs:
            job.finish("; ".join(self._damage))
            if self._damage and "staged" not in self._sides:
                job.found.errors.append(LakeError(self._damage[0]))

    def _explain(self, jobs: Sequence[_Job], paths: Sequence[str]) -> None:
        """Hold what nobody expected on the target against the whole stage, once more."""
        audits = {job.partition: job.target_audit for job in jobs if job.target_audit is not None}
        wanted = {s: at for job in jobs for s, at in job.starts().items()}
        for source, rows in self._rows(paths, wanted):
            audits[source.plain].explain(rows)
        for audit in audits.values():
            audit.close()

    def _rows(
        self, paths: Sequence[str], wanted: Mapping[SourcePartition, int]
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Yield the staged rows, file by file: one that cannot be read is noted and passed over."""
        for path in paths:
            try:
                yield from self._staged.rows([path], wanted)
            except LakeError as error:
                self._damage.append(str(error))


@contextmanager
def _no_collector() -> Iterator[None]:
    """Keep the collector of cycles away from messages that come by the 20,000.

    They hold none, and looking through them again and again took half of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _target_ranges(view: TargetView) -> list[OffsetRange]:
    if view.low >= view.end:
        return []
    target = SourcePartition(view.partition.topic, "", view.partition.partition)
    marks = Watermarks(view.low, view.end, view.end)
    return [OffsetRange(target, view.low, view.end, None, None, marks)]


def _bundles(jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
    """Yield small partitions of a slot together, large ones alone."""
    small: dict[int, list[_Job]] = {}
    for job in jobs:
        if not job.is_small:
            yield [job]
            continue
        held_back = small.setdefault(job.partition.slot, [])
        held_back.append(job)
        if len(held_back) == TOGETHER:
            yield small.pop(job.partition.slot)
    yield from small.values()


def _keep(site: Site, flow: FlowConfig, findings: FlowFindings) -> None:
    """Append what was found to `verification`; a partition that could not be compared is not."""
    now_ms = int(time.time() * 1000)
    rows = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "records": each.records,
            **{kind: each.counts[kind] for kind in KINDS},
            "verified_at_ms": now_ms,
        }
        for each in findings.partitions
        if each.differences or not each.errors
    ]
    if rows:
        site.lake.of_flow(flow.flow, VERIFICATION).append(rows)
