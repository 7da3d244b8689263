"""The asset `offset_map` of a flow: its materialization is the replay."""

# No postponed annotations: Dagster reads them to find resources and configuration.

import dagster as dg

from assets.keys import (
    asset_group,
    offset_map_key,
    open_context,
    records_key,
    remote_topics_key,
    replays_key,
    topic_partitions_def,
)
from assets.metadata import mapped_metadata, staged_metadata
from deltamirror.run.single_topic import materialize_topic
from resources.dagster_resources import MirrorFile, Spark
from schemas.config.flow import Flow


def remote_topics(flow: Flow) -> dg.AssetSpec:
    """Return the topics that *flow* keeps on its target, as their readers see them."""
    return dg.AssetSpec(
        remote_topics_key(flow),
        deps=[offset_map_key(flow)],
        description=f"The topics of {flow.source} on cluster {flow.target}.",
        group_name=asset_group(flow.key),
        kinds={"kafka"},
    )


def replays(flow: Flow) -> dg.AssetSpec:
    """Return the topics that the job `replay` wrote for audits."""
    return dg.AssetSpec(
        replays_key(flow),
        deps=[records_key(flow.source)],
        description=f"Point-in-time replays of {flow.source} on {flow.target}: the job `replay`.",
        group_name=asset_group(flow.key),
        kinds={"kafka"},
    )


def offset_map(flow: Flow) -> dg.AssetsDefinition:
    """Return the asset that replays the topics of *flow*."""
    by_topic = dg.AssetDep(
        records_key(flow.source), partition_mapping=dg.IdentityPartitionMapping()
    )

    @dg.asset(
        key=offset_map_key(flow),
        partitions_def=topic_partitions_def(flow.key),
        deps=[by_topic],
        description=f"Which offset on {flow.target} every record of {flow.source} was given.",
        group_name=asset_group(flow.key),
        kinds={"kafka", "spark", "deltalake"},
    )
    def _offset_map(
        context: dg.AssetExecutionContext, file: MirrorFile, spark: Spark
    ) -> dg.MaterializeResult[None]:
        """Send what is staged of a topic to the target and keep where each record went."""
        topic = context.partition_key
        with open_context(file) as mirror_context:
            before = mapped_metadata(mirror_context, flow, topic)["dagster/row_count"]
            workers = spark.workers(mirror_context.config.tasks_max)
            materialize_topic(mirror_context, mirror_context.config.flow(flow.name), topic, workers)
            numbers = mapped_metadata(mirror_context, flow, topic)
            replayed_now = numbers["dagster/row_count"] - before
            staged = staged_metadata(mirror_context, flow.source, topic)["dagster/row_count"]
        # A topic that was replayed again from its beginning was mapped more than once.
        lag = max(0, staged - numbers["dagster/row_count"])
        return dg.MaterializeResult(metadata={"records": replayed_now, "lag": lag, **numbers})

    return _offset_map
