"""The asset `records` of a source cluster: what is staged of each of its topics."""

# No postponed annotations: Dagster reads them to find resources and configuration.

import dagster as dg

from assets.keys import group_of, records_key, site_of, source_key, topics_of
from assets.metadata import staged_numbers
from deltamirror.context import Site
from deltamirror.run.single_topic import last_stable, stage_topic
from deltamirror.staging.segment_index import Ledger
from resources.dagster_resources import MirrorFile, Spark


def source_topics(alias: str) -> dg.AssetSpec:
    """Return the topics of source cluster *alias*, which somebody else fills."""
    return dg.AssetSpec(
        source_key(alias),
        description=f"The topics of cluster {alias}, as its applications write them.",
        group_name=group_of(alias),
        kinds={"kafka"},
    )


def records(alias: str) -> dg.AssetsDefinition:
    """Return the asset that stages the topics of source cluster *alias*."""

    @dg.asset(
        key=records_key(alias),
        partitions_def=topics_of(alias),
        deps=[source_key(alias)],
        description=f"Every record of {alias} under its own topic, partition and offset.",
        group_name=group_of(alias),
        kinds={"spark", "deltalake"},
    )
    def _records(
        context: dg.AssetExecutionContext, file: MirrorFile, spark: Spark
    ) -> dg.MaterializeResult[None]:
        """Stage a topic up to the last stable offsets that its source has now."""
        topic = context.partition_key
        with site_of(file) as site:
            before = staged_numbers(site, alias, topic)["dagster/row_count"]
            stage_topic(site, alias, topic, spark.workers(site.config.tasks_max))
            numbers = staged_numbers(site, alias, topic)
            staged_now = numbers["dagster/row_count"] - before
            lag = _lag(site, alias, topic)
        return dg.MaterializeResult(metadata={"records": staged_now, "lag": lag, **numbers})

    return _records


def _lag(site: Site, alias: str, topic: str) -> int:
    """Return how many offsets the source has that are not staged."""
    ledger = Ledger(site.lake.segments(alias))
    ledger.refresh()
    frontiers = ledger.chains.frontiers
    return sum(
        max(0, end - (frontiers[at].next_offset if at in frontiers else 0))
        for at, (_, end) in last_stable(site, alias, topic).items()
    )
