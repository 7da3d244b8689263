"""Assets without partitions: group offsets of sources; checkpoints, lag and others of flows."""

# Without `from __future__ import annotations`: Dagster reads annotations to find resources.

import dagster as dg

from assets.keys import asset_group, offset_map_key, open_context, source_topics_key
from assets.metadata import lag_metadata
from deltamirror.groups.checkpoints import write_checkpoints
from deltamirror.groups.snapshots import snapshot_groups
from deltamirror.monitoring.heartbeats import HeartbeatEmitter
from deltamirror.monitoring.lag import write_lag
from deltamirror.verification.verify import verify
from resources.dagster_resources import MirrorFile
from schemas.config.config import HeartbeatConfig
from schemas.config.flow import Flow


def group_offsets(alias: str) -> dg.AssetsDefinition:
    """Return the asset of the committed offsets of groups on source cluster *alias*."""

    @dg.asset(
        key=[alias, "group_offsets"],
        deps=[source_topics_key(alias)],
        description=f"Committed offsets of the consumer groups of {alias}, with the time.",
        group_name=asset_group(alias),
        kinds={"kafka", "deltalake"},
    )
    def _group_offsets(file: MirrorFile) -> dg.MaterializeResult[None]:
        with open_context(file) as context:
            seen = snapshot_groups(context, alias)
        numbers = {"groups": seen.groups, "changed_offsets": seen.changed}
        return dg.MaterializeResult(
            metadata={**numbers, "unreadable_groups": len(seen.read_errors)}
        )

    return _group_offsets


def checkpoints(flow: Flow) -> dg.AssetsDefinition:
    """Return the asset of the source groups' offsets, translated to the target of *flow*."""

    @dg.asset(
        key=[flow.key, "checkpoints"],
        deps=[offset_map_key(flow), [flow.source, "group_offsets"]],
        description=f"Offsets at which the groups of {flow.source} resume on {flow.target}.",
        group_name=asset_group(flow.key),
        kinds={"kafka", "deltalake"},
    )
    def _checkpoints(file: MirrorFile) -> dg.MaterializeResult[None]:
        with open_context(file) as context:
            changed = write_checkpoints(context, context.config.flow(flow.name))
        groups = {row["group"] for row in changed}
        return dg.MaterializeResult(
            metadata={"changed_offsets": len(changed), "changed_groups": len(groups)}
        )

    return _checkpoints


def heartbeats(config: HeartbeatConfig) -> dg.AssetsDefinition:
    """Return the asset that writes one heartbeat of a flow."""
    flow = config.flow

    @dg.asset(
        key=[flow.key, "heartbeats"],
        description=f"Heartbeats of {flow}, in the topic {config.topic} on {flow.target}.",
        group_name=asset_group(flow.key),
        kinds={"kafka"},
    )
    def _heartbeats(file: MirrorFile) -> dg.MaterializeResult[None]:
        """Write one heartbeat. A running `deltamirror run` writes heartbeats, too."""
        with open_context(file) as context:
            beat = HeartbeatEmitter(context, config).emit()
        return dg.MaterializeResult(metadata={"timestamp_ms": beat.timestamp_ms})

    return _heartbeats


def lag(flow: Flow) -> dg.AssetsDefinition:
    """Return the asset of the replication lag of *flow*."""

    @dg.asset(
        key=[flow.key, "lag"],
        deps=[offset_map_key(flow)],
        description=f"Offsets of {flow.source} that are not yet on {flow.target}, and their age.",
        group_name=asset_group(flow.key),
        kinds={"kafka", "deltalake"},
    )
    def _lag(file: MirrorFile) -> dg.MaterializeResult[None]:
        with open_context(file) as context:
            # Fail if a cluster is down, because its partitions would count as zero.
            context.cluster(flow.source).probe()
            context.cluster(flow.target).probe()
            rows = write_lag(context, context.config.flow(flow.name))
        return dg.MaterializeResult(metadata=lag_metadata(rows))

    return _lag


def verification(flow: Flow) -> dg.AssetsDefinition:
    """Return the asset that compares source, stage and target of *flow* record by record."""

    @dg.asset(
        key=[flow.key, "verification"],
        deps=[offset_map_key(flow)],
        description=f"{flow.source}, the stage and {flow.target} compared record by record.",
        group_name=asset_group(flow.key),
        kinds={"kafka", "deltalake"},
    )
    def _verification(file: MirrorFile) -> dg.MaterializeResult[None]:
        """Compare all records of the flow; count the differences for the check `parity`."""
        with open_context(file) as context:
            found = verify(context, flows=[flow.name])
        for error in found.errors:
            raise dg.Failure(f"some records could not be compared: {error['message']}")
        return dg.MaterializeResult(metadata=found.totals)

    return _verification
