"""Assets of a flow's replay: `offset_map`, the remote topics and point-in-time replays."""

# Without `from __future__ import annotations`: Dagster reads annotations to find resources.

import dagster as dg

from assets.keys import (
    asset_group,
    offset_map_key,
    open_context,
    records_key,
    replays_key,
    topic_partitions_def,
)
from assets.metadata import mapped_metadata, staged_metadata
from deltamirror.run.single_topic import materialize_topic
from resources.dagster_resources import MirrorFile, Spark
from schemas.config.flow import Flow


def remote_topics(flow: Flow) -> dg.AssetSpec:
    """Return the asset of the remote topics of *flow*."""
    return dg.AssetSpec(
        # Not the key of the target's own topics: two opposite flows would be a cycle in the graph.
        [flow.target, f"from_{flow.source}"],
        deps=[offset_map_key(flow)],
        description=f"Remote topics of {flow.source} on cluster {flow.target}.",
        group_name=asset_group(flow.key),
        kinds={"kafka"},
    )


def replays(flow: Flow) -> dg.AssetSpec:
    """Return the asset of the topics that the job `replay` wrote."""
    return dg.AssetSpec(
        replays_key(flow),
        deps=[records_key(flow.source)],
        description=f"Topics on {flow.target} with replays of {flow.source} by the job `replay`.",
        group_name=asset_group(flow.key),
        kinds={"kafka"},
    )


def offset_map(flow: Flow) -> dg.AssetsDefinition:
    """Return the asset of the offset map of *flow*. To materialize a topic is to replay it."""
    by_topic = dg.AssetDep(
        records_key(flow.source), partition_mapping=dg.IdentityPartitionMapping()
    )

    @dg.asset(
        key=offset_map_key(flow),
        partitions_def=topic_partitions_def(flow.key),
        deps=[by_topic],
        description=f"The offset on {flow.target} of every record of {flow.source}.",
        group_name=asset_group(flow.key),
        kinds={"kafka", "spark", "deltalake"},
    )
    def _offset_map(
        context: dg.AssetExecutionContext, file: MirrorFile, spark: Spark
    ) -> dg.MaterializeResult[None]:
        topic = context.partition_key
        with open_context(file) as mirror_context:
            before = mapped_metadata(mirror_context, flow, topic)["dagster/row_count"]
            workers = spark.workers(mirror_context.config.tasks_max)
            materialize_topic(mirror_context, mirror_context.config.flow(flow.name), topic, workers)
            numbers = mapped_metadata(mirror_context, flow, topic)
            replayed_now = numbers["dagster/row_count"] - before
            staged = staged_metadata(mirror_context, flow.source, topic)["dagster/row_count"]
        # A topic that was replayed again from its beginning has more mapped records than staged.
        lag = max(0, staged - numbers["dagster/row_count"])
        return dg.MaterializeResult(metadata={"records": replayed_now, "lag": lag, **numbers})

    return _offset_map
