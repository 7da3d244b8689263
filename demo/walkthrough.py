"""The demo's story: load, mirror, fail over, prove, ask; each chapter a few lines of output."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from deltamirror.context import MirrorContext
from deltamirror.groups.checkpoints import translate_groups
from deltamirror.groups.snapshots import snapshot_groups
from deltamirror.monitoring.flow_status import flow_status
from deltamirror.run.supervisor import mirror
from deltamirror.verification.verify import verify
from demo.data import TABLES
from demo.kafka_clients import holds_records, load_table, next_record, read_first_half
from demo.rendering import DemoProgress, Resumption, answer_table, resumption_table, status_table
from demo.workspace import FLOW, SOURCE, TARGET, DemoWorkspace
from resources.config.load import read_config
from resources.spark.session import spark_session
from schemas.errors import DeltamirrorError
from schemas.kafka.partition import TopicPartition, Watermarks
from schemas.offset_map import Translation
from schemas.verification import KINDS

GROUP = "billing"
QUERY = """\
SELECT flight.origin, count(*) AS flights, round(avg(flight.dep_delay), 1) AS minutes_late
FROM (SELECT from_json(CAST(value AS STRING), 'origin STRING, dep_delay INT') AS flight
      FROM delta.`{records}` WHERE topic = 'flights')
GROUP BY flight.origin ORDER BY minutes_late DESC"""


class DemoFailedError(DeltamirrorError):
    """The demo did not end as it should: a defect of deltamirror."""

    hint = "Report it, with the output of `.venv/bin/deltamirror verify` and `status`."


def run_walkthrough(workspace: DemoWorkspace, console: Console) -> None:
    """Tell the whole story in *workspace*. Raises DeltamirrorError where it cannot go on."""
    began = time.monotonic()
    workspace.root.mkdir(exist_ok=True)
    with _section(console, "Two Kafka clusters on this machine"):
        for alias, address in workspace.start_clusters().items():
            console.print(f"   {alias}  {address}")
    context = MirrorContext(read_config(workspace.properties))
    try:
        with console.status("   Spark starts"), _redirect_stderr(workspace.root / "spark.log"):
            spark_session(context.config.tasks_max)
        with _section(console, f"The flights of 2013, written to {SOURCE}"):
            _load(context, console)
            _read_as_group(context, console)
        with _section(console, f"Mirrored to {TARGET} through the lake"):
            _mirror(context, console)
        with _section(console, f"The group {GROUP} moves to {TARGET}"):
            _resume(context, console)
        with _section(console, "Source, stage and target compared, record by record"):
            _verify(context, console)
        with _section(console, "The staged log is a table"):
            _query(context, console)
    finally:
        context.close()
    console.print(f"Done in {time.monotonic() - began:.0f} s. What to type next:")
    console.print("   make ui      the same in Dagster: topics, records, offset_map, lag")
    console.print("   make demo    once more: nothing is copied twice")
    console.print("   make down    end the clusters; their data stays in .demo")


@contextlib.contextmanager
def _redirect_stderr(log: Path) -> Iterator[None]:
    """Send what processes started meanwhile write to stderr, for as long as they live, to *log*."""
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def _section(console: Console, title: str) -> Iterator[None]:
    console.print(f"[bold]{title}[/bold]")
    yield
    console.print()


def _load(context: MirrorContext, console: Console) -> None:
    config, cluster = context.config.clusters[SOURCE], context.cluster(SOURCE)
    there = cluster.topics([table.name for table in TABLES])
    for table in TABLES:
        if table.name not in there:
            # Kafka would delete records of 2013 at once.
            cluster.create_topic(table.name, table.partitions, 1, {"retention.ms": "-1"})
        elif holds_records(config, table.name, table.partitions):
            console.print(f"   {table.name:9} is there from an earlier run")
            continue
        with console.status(f"   {table.name}"):
            records = load_table(config, table)
        console.print(f"   {table.name:9}{records:>8,} records")


def _read_as_group(context: MirrorContext, console: Console) -> None:
    """Let the group read its half, once: where it is from then on is its own affair."""
    cluster = context.cluster(SOURCE)
    committed = cluster.group_offsets(GROUP)
    if not committed:
        partitions = [TopicPartition("flights", each) for each in range(TABLES[0].partitions)]
        ends = {
            partition.partition: marks.stable
            for partition, marks in cluster.watermarks(partitions).items()
            if isinstance(marks, Watermarks)
        }
        read_first_half(context.config.clusters[SOURCE], GROUP, "flights", ends)
        committed = cluster.group_offsets(GROUP)
    console.print(f"   group {GROUP} has read {sum(committed.values()):,} flights and committed")


def _mirror(context: MirrorContext, console: Console) -> None:
    flow = context.config.flow(FLOW)
    before = flow_status(context, flow).partitions
    to_stage = sum(max(0, each.source_end - each.staged) for each in before)
    to_replay = sum(max(0, each.source_end - each.replayed) for each in before)
    with DemoProgress(console, to_stage, to_replay) as bars:
        mirror(context.config, until_caught_up=True, listeners=[bars])
    if bars.records_paired:
        console.print(
            f"   {bars.records_paired:,} records were on the target: found, not sent again."
        )
    elif not bars.records_staged + bars.records_replayed:
        console.print("   Nothing was copied: every record was staged and replayed before.")
    console.print(status_table(flow_status(context, flow).partitions))


def _resume(context: MirrorContext, console: Console) -> None:
    flow = context.config.flow(FLOW)
    snapshot_groups(context, SOURCE)
    found = [_resumption(context, each.at) for each in translate_groups(context, flow, group=GROUP)]
    console.print(resumption_table(found))
    if not found or not all(each.is_same for each in found):
        raise DemoFailedError(f"group {GROUP} does not resume at its next record")
    console.print(f"   {GROUP} reads the same next record on both sides: 0 read again, 0 skipped.")


def _resumption(context: MirrorContext, at: Translation) -> Resumption:
    upstream = TopicPartition(at.topic, at.partition)
    if at.downstream_offset is None:
        raise DemoFailedError(f"nothing of {upstream} has arrived: {GROUP} cannot be translated")
    clusters = context.config.clusters
    here = next_record(clusters[SOURCE], upstream, at.upstream_offset)
    there = next_record(clusters[TARGET], at.target, at.downstream_offset)
    return Resumption(upstream, at.upstream_offset, at.downstream_offset, (here, there))


def _verify(context: MirrorContext, console: Console) -> None:
    with console.status("   verify reads both clusters and the lake"):
        found = verify(context)
    totals = found.totals
    told = ", ".join(f"{totals[kind]:,} {kind}" for kind in KINDS)
    console.print(f"   verified {totals['records']:,} records: {told}")
    found.check()


def _query(context: MirrorContext, console: Console) -> None:
    records = context.lake.root.absolute() / "clusters" / SOURCE / "records"
    console.print(
        QUERY.format(records=".demo/lake/clusters/us-east/records"), style="dim", soft_wrap=True
    )
    answer = spark_session().sql(QUERY.format(records=records))
    console.print(answer_table(answer.columns, answer.collect()))
