"""The asset `offset_map` of a flow: its materialization is the replay."""

# No postponed annotations: Dagster reads them to find resources and configuration.

import dagster as dg

from assets.keys import (
    group_of,
    map_key,
    records_key,
    remote_key,
    replays_key,
    site_of,
    topics_of,
)
from assets.metadata import mapped_numbers, staged_numbers
from deltamirror.run.single_topic import replay_topic
from resources.dagster_resources import MirrorFile, Spark
from schemas.config.flow import Flow


def remote_topics(flow: Flow) -> dg.AssetSpec:
    """Return the topics that *flow* keeps on its target, as their readers see them."""
    return dg.AssetSpec(
        remote_key(flow),
        deps=[map_key(flow)],
        description=f"The topics of {flow.source} on cluster {flow.target}.",
        group_name=group_of(flow.key),
        kinds={"kafka"},
    )


def replays(flow: Flow) -> dg.AssetSpec:
    """Return the topics that the job `replay` wrote for audits."""
    return dg.AssetSpec(
        replays_key(flow),
        deps=[records_key(flow.source)],
        description=f"Point-in-time replays of {flow.source} on {flow.target}: the job `replay`.",
        group_name=group_of(flow.key),
        kinds={"kafka"},
    )


def offset_map(flow: Flow) -> dg.AssetsDefinition:
    """Return the asset that replays the topics of *flow*."""
    by_topic = dg.AssetDep(
        records_key(flow.source), partition_mapping=dg.IdentityPartitionMapping()
    )

    @dg.asset(
        key=map_key(flow),
        partitions_def=topics_of(flow.key),
        deps=[by_topic],
        description=f"Which offset on {flow.target} every record of {flow.source} was given.",
        group_name=group_of(flow.key),
        kinds={"kafka", "spark", "deltalake"},
    )
    def _offset_map(
        context: dg.AssetExecutionContext, file: MirrorFile, spark: Spark
    ) -> dg.MaterializeResult[None]:
        """Send what is staged of a topic to the target and keep where each record went."""
        topic = context.partition_key
        with site_of(file) as site:
            before = mapped_numbers(site, flow, topic)["dagster/row_count"]
            workers = spark.workers(site.config.tasks_max)
            replay_topic(site, site.config.flow(flow.name), topic, workers)
            numbers = mapped_numbers(site, flow, topic)
            replayed_now = numbers["dagster/row_count"] - before
            staged = staged_numbers(site, flow.source, topic)["dagster/row_count"]
        # A topic that was replayed again from its beginning was mapped more than once.
        lag = max(0, staged - numbers["dagster/row_count"])
        return dg.MaterializeResult(metadata={"records": replayed_now, "lag": lag, **numbers})

    return _offset_map
