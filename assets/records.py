"""The asset `records` of a source cluster: what is staged of each of its topics."""

# No postponed annotations: Dagster reads them to find resources and configuration.

import dagster as dg

from assets.keys import (
    asset_group,
    open_context,
    records_key,
    source_topics_key,
    topic_partitions_def,
)
from assets.metadata import staged_metadata
from deltamirror.context import MirrorContext
from deltamirror.run.single_topic import last_stable_offsets, stage_topic
from deltamirror.staging.segment_index import SegmentIndex
from resources.dagster_resources import MirrorFile, Spark


def source_topics(alias: str) -> dg.AssetSpec:
    """Return the topics of source cluster *alias*, which somebody else fills."""
    return dg.AssetSpec(
        source_topics_key(alias),
        description=f"The topics of cluster {alias}, as its applications write them.",
        group_name=asset_group(alias),
        kinds={"kafka"},
    )


def records(alias: str) -> dg.AssetsDefinition:
    """Return the asset that stages the topics of source cluster *alias*."""

    @dg.asset(
        key=records_key(alias),
        partitions_def=topic_partitions_def(alias),
        deps=[source_topics_key(alias)],
        description=f"Every record of {alias} under its own topic, partition and offset.",
        group_name=asset_group(alias),
        kinds={"spark", "deltalake"},
    )
    def _records(
        context: dg.AssetExecutionContext, file: MirrorFile, spark: Spark
    ) -> dg.MaterializeResult[None]:
        """Stage a topic up to the last stable offsets that its source has now."""
        topic = context.partition_key
        with open_context(file) as mirror_context:
            before = staged_metadata(mirror_context, alias, topic)["dagster/row_count"]
            stage_topic(
                mirror_context, alias, topic, spark.workers(mirror_context.config.tasks_max)
            )
            numbers = staged_metadata(mirror_context, alias, topic)
            staged_now = numbers["dagster/row_count"] - before
            lag = _lag(mirror_context, alias, topic)
        return dg.MaterializeResult(metadata={"records": staged_now, "lag": lag, **numbers})

    return _records


def _lag(mirror_context: MirrorContext, alias: str, topic: str) -> int:
    """Return how many offsets the source has that are not staged."""
    segment_index = SegmentIndex(mirror_context.lake.segments(alias))
    segment_index.refresh()
    frontiers = segment_index.chains.frontiers
    return sum(
        max(0, end - (frontiers[at].next_offset if at in frontiers else 0))
        for at, (_, end) in last_stable_offsets(mirror_context, alias, topic).items()
    )
