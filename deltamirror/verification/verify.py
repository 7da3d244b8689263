"""Compare source, staged records and target of each flow, and append the findings to a table.

First digests of ranges are compared, for which each side is read once. Only ranges whose digests
differ are then compared record by record.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from deltamirror.context import MirrorContext
from deltamirror.verification.cluster_snapshot import (
    TRANSACTION_WAIT_S,
    SourceSnapshot,
    TargetSnapshot,
    read_segments,
    snapshot_source,
    snapshot_target,
)
from deltamirror.verification.digest_pass import DigestPass, NullProgressListener, ProgressListener
from deltamirror.verification.range_digests import SideSettings
from deltamirror.verification.read_plan import PartitionPlan, limit_to_snapshot, plan_partition
from deltamirror.verification.record_pass import RecordPass
from deltamirror.verification.resume_file import ResumeFile
from pipeline.verification.suspects import SuspectRanges
from resources.delta.file_index import FileIndex
from schemas.config.config import FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.errors.source import TopicMissingError
from schemas.kafka.partition import TopicPartition
from schemas.tables import VERIFICATION
from schemas.verification import KINDS, SIDES, SOURCE, TARGET, FlowFindings, Verification


def verify(
    context: MirrorContext,
    *,
    flows: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    sides: Collection[str] = SIDES,
    share: float = 1.0,
    no_resume: bool = False,
    listener: ProgressListener | None = None,
) -> Verification:
    """Compare *flows* (None: all) and source *topics* (None: all); return the findings.

    *sides* selects the comparisons: `source` compares the source with the staged records, `staged`
    the staged records with the digests of their segments, `target` the target with the staged
    records. *share* (0 to 1) is the part of the records to compare, selected at random. An
    interrupted run with the same arguments is resumed unless *no_resume*. Findings are appended to
    the table `verification`. Raises ConfigError for an unknown flow, TopicMissingError if nothing
    of a topic is staged, LakeError, WorkerDiedError. Other errors are in the findings.
    """
    chosen = [context.config.flow(name) for name in flows] if flows else list(context.config.flows)
    audits = [_FlowVerifier(context, flow, topics, sides, share) for flow in chosen]
    staged = {each.topic for audit in audits for each in audit.segments}
    for topic in topics or ():
        if topic not in staged:
            raise TopicMissingError(topic, location="among the staged topics of the selected flows")
    found = Verification(
        [audit.run(listener or NullProgressListener(), no_resume=no_resume) for audit in audits]
    )
    for flow, findings in zip(chosen, found.flows, strict=True):
        _save_findings(context, flow, findings)
    return found


class _FlowVerifier:
    """Compare one flow."""

    def __init__(
        self,
        context: MirrorContext,
        flow: FlowConfig,
        topics: Collection[str] | None,
        sides: Collection[str],
        share: float,
    ) -> None:
        self._context, self._flow, self._topics = context, flow, topics
        self._sides, self._share = sides, share
        self._errors: list[DeltamirrorError] = []
        self._records = context.lake.records(flow.flow.source)
        clusters, ends = context.config.clusters, flow.flow
        self._side_settings = SideSettings(
            clusters[ends.source].consumer, clusters[ends.target].consumer, self._records.path
        )
        self.segments = read_segments(context, flow, topics)

    def run(self, listener: ProgressListener, *, no_resume: bool) -> FlowFindings:
        """Compare all partitions; return the findings."""
        name = self._flow.flow.name
        if not self.segments:
            return FlowFindings(name)
        plans = self._plan_partitions(self.segments, TRANSACTION_WAIT_S)
        arguments = [sorted(self._topics or ()), sorted(self._sides), self._share]
        resume_file = ResumeFile(
            self._context.lake.root, self._flow.flow.key, arguments, no_resume=no_resume
        )
        digests = DigestPass(
            name, plans, FileIndex.from_table(self._records), self._sides, self._share
        )
        digests.run(self._side_settings, self._context.config.tasks_max, resume_file, listener)
        self._compare_records(plans, digests.suspect_ranges)
        resume_file.end()
        found = [plan.found for plan in plans.values()]
        return FlowFindings(name, found, self._errors, digests.resumed, self._share)

    def _compare_records(
        self,
        plans: Mapping[TopicPartition, PartitionPlan],
        suspect_ranges: Mapping[TopicPartition, SuspectRanges],
    ) -> None:
        """Compare suspect ranges record by record, with a new snapshot of clusters and map.

        If the flow is running, records sent since the first snapshot are left out. Records that
        were visible then are still visible, so there is no wait for transactions that are open now.
        """
        suspect_ranges = {
            partition: suspects_of_partition
            for partition, suspects_of_partition in suspect_ranges.items()
            if suspects_of_partition or plans[partition].is_faulty
        }
        if not suspect_ranges:
            return
        newer = self._plan_partitions(suspect_ranges, None)
        for partition, plan in newer.items():
            former = plans[partition].found
            former.add_errors(plan.found.errors)
            plan.found = former
            plan.target = limit_to_snapshot(plans[partition].target, plan.target)
        audit = RecordPass(self._side_settings, FileIndex.from_table(self._records), self._sides)
        audit.run(
            [
                (newer[partition], suspects_of_partition)
                for partition, suspects_of_partition in suspect_ranges.items()
            ]
        )

    def _plan_partitions(
        self, partitions: Collection[TopicPartition], transaction_wait_s: float | None
    ) -> dict[TopicPartition, PartitionPlan]:
        """Snapshot both clusters and the lake; return the plan of each of *partitions*.

        Segments are read last, so that all records that the snapshots cover are staged.
        *transaction_wait_s* is how long to wait for the target's open transactions to end; None:
        do not wait.
        """
        source: SourceSnapshot | None = None
        target: TargetSnapshot | None = None
        try:
            if SOURCE in self._sides:
                source = snapshot_source(self._context, self._flow, partitions)
        except DeltamirrorError as error:
            self._add_error(error)
        try:
            if TARGET in self._sides:
                target = snapshot_target(self._context, self._flow, partitions, transaction_wait_s)
        except DeltamirrorError as error:
            self._add_error(error)
        segments = read_segments(self._context, self._flow, self._topics)
        self._records.refresh()
        name, sides = self._flow.flow.name, self._sides
        return {
            each: plan_partition(name, each, rows, self._records, source, target, sides)
            for each, rows in segments.items()
            if each in partitions
        }

    def _add_error(self, error: DeltamirrorError) -> None:
        if str(error) not in map(str, self._errors):
            self._errors.append(error)


def _save_findings(context: MirrorContext, flow: FlowConfig, findings: FlowFindings) -> None:
    """Append the findings to the table `verification`, except partitions with errors only."""
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
        context.lake.flow_table(flow.flow, VERIFICATION).append(rows)
