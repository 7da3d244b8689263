"""Source, stage and target of each flow compared, and what that found kept.

Digests first: every side is read once and summed up by range, and only ranges whose sums are not
the same everywhere are looked at record by record.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from deltamirror.context import Site
from deltamirror.verification.cluster_snapshot import (
    SETTLE_S,
    SourceSeen,
    TargetSeen,
    look_at_source,
    look_at_target,
    read_segments,
)
from deltamirror.verification.digest_pass import DigestAudit, Reporter, Silent
from deltamirror.verification.range_digests import Places
from deltamirror.verification.read_plan import PartitionPlan, as_of, plan_of
from deltamirror.verification.record_pass import RecordAudit
from deltamirror.verification.resume_file import Journal
from pipeline.verification.suspects import Doubt
from resources.delta.file_index import StagedFiles
from schemas.config.config import FlowConfig
from schemas.errors import DeltamirrorError, TopicMissingError
from schemas.kafka.partition import TopicPartition
from schemas.tables import VERIFICATION
from schemas.verification import KINDS, SIDES, SOURCE, TARGET, FlowFindings, Verification


def verify(
    site: Site,
    *,
    flows: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    sides: Collection[str] = SIDES,
    share: float = 1.0,
    anew: bool = False,
    reporter: Reporter | None = None,
) -> Verification:
    """Compare what is staged of *flows* (None: all) and source *topics* (None: all).

    *sides*: `source` holds the source against the stage, `staged` the stage against its own
    evidence, `target` the target against the stage. *share*: how much of it, taken at random, 0 to
    1. It goes on where a killed one was unless *anew*. What was found is appended to
    `verification`. Raises ConfigError: an unknown flow; TopicMissingError: nothing of a topic is
    staged; LakeError, WorkerDiedError. Anything else that stands in the way is in the answer.
    """
    chosen = [site.config.flow(name) for name in flows] if flows else list(site.config.flows)
    audits = [_FlowAudit(site, flow, topics, sides, share) for flow in chosen]
    staged = {each.topic for audit in audits for each in audit.segments}
    for topic in topics or ():
        if topic not in staged:
            raise TopicMissingError(topic, "in the stage of the flows asked for")
    found = Verification([audit.run(reporter or Silent(), anew=anew) for audit in audits])
    for flow, findings in zip(chosen, found.flows, strict=True):
        _keep(site, flow, findings)
    return found


class _FlowAudit:
    """The comparison of one flow."""

    def __init__(
        self,
        site: Site,
        flow: FlowConfig,
        topics: Collection[str] | None,
        sides: Collection[str],
        share: float,
    ) -> None:
        self._site, self._flow, self._topics = site, flow, topics
        self._sides, self._share = sides, share
        self._errors: list[DeltamirrorError] = []
        self._records = site.lake.records(flow.flow.source)
        clusters, ends = site.config.clusters, flow.flow
        self._places = Places(
            clusters[ends.source].consumer, clusters[ends.target].consumer, self._records.path
        )
        self.segments = read_segments(site, flow, topics)

    def run(self, reporter: Reporter, *, anew: bool) -> FlowFindings:
        """Compare every partition; return what was found."""
        name = self._flow.flow.name
        if not self.segments:
            return FlowFindings(name)
        plans = self._plans(self.segments, SETTLE_S)
        question = [sorted(self._topics or ()), sorted(self._sides), self._share]
        journal = Journal(self._site.lake.root, self._flow.flow.key, question, anew=anew)
        digests = DigestAudit(name, plans, StagedFiles.of(self._records), self._sides, self._share)
        digests.run(self._places, self._site.config.tasks_max, journal, reporter)
        self._look_closer(plans, digests.doubts)
        journal.end()
        found = [plan.found for plan in plans.values()]
        return FlowFindings(name, found, self._errors, digests.resumed, self._share)

    def _look_closer(
        self,
        plans: Mapping[TopicPartition, PartitionPlan],
        doubts: Mapping[TopicPartition, Doubt],
    ) -> None:
        """Look at what is in doubt record by record, with what both clusters and the map say now.

        A mirror may have gone on meanwhile: what it sent since the first look is left out. What
        was visible then is still visible, whichever transactions are open now.
        """
        doubts = {
            partition: doubt
            for partition, doubt in doubts.items()
            if doubt or plans[partition].is_faulty
        }
        if not doubts:
            return
        newer = self._plans(doubts, None)
        for partition, plan in newer.items():
            former = plans[partition].found
            former.tell(plan.found.errors)
            plan.found = former
            plan.target = as_of(plans[partition].target, plan.target)
        audit = RecordAudit(self._places, StagedFiles.of(self._records), self._sides)
        audit.run([(newer[partition], doubt) for partition, doubt in doubts.items()])

    def _plans(
        self, partitions: Collection[TopicPartition], settle_s: float | None
    ) -> dict[TopicPartition, PartitionPlan]:
        """Look at both clusters and the lake; return how to compare each of *partitions*.

        The segments are read last: so the stage is never behind what the clusters told. *settle_s*
        is how long the target's open transactions are waited for; None: they do not matter.
        """
        source: SourceSeen | None = None
        target: TargetSeen | None = None
        try:
            if SOURCE in self._sides:
                source = look_at_source(self._site, self._flow, partitions)
        except DeltamirrorError as error:
            self._tell(error)
        try:
            if TARGET in self._sides:
                target = look_at_target(self._site, self._flow, partitions, settle_s)
        except DeltamirrorError as error:
            self._tell(error)
        segments = read_segments(self._site, self._flow, self._topics)
        self._records.refresh()
        name, sides = self._flow.flow.name, self._sides
        return {
            each: plan_of(name, each, rows, self._records, source, target, sides)
            for each, rows in segments.items()
            if each in partitions
        }

    def _tell(self, error: DeltamirrorError) -> None:
        if str(error) not in map(str, self._errors):
            self._errors.append(error)


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
