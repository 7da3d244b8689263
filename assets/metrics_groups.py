"""What the board is told beside the loops: groups as last seen, and how long checkpoints take."""

from __future__ import annotations

import time

from assets.metrics_board import Board, GroupCommit
from deltamirror.context import Site
from deltamirror.groups.checkpoints import write_checkpoints
from deltamirror.groups.snapshots import latest_commits
from schemas.config.config import FlowConfig
from schemas.kafka.partition import TopicPartition
from schemas.tables import GROUP_OFFSETS


def checkpoint(site: Site, flow_config: FlowConfig, board: Board) -> None:
    """Write the checkpoints of the flow that changed, and tell *board* how long that took.

    The time goes from the beginning of the round to the answer to all of it, as MirrorMaker 2's
    checkpoint-latency-ms does; where none are emitted there is none.
    """
    began_s = time.monotonic()
    rows = write_checkpoints(site, flow_config)
    took_ms = (time.monotonic() - began_s) * 1000
    if flow_config.emit_checkpoints_interval_s is not None:
        written = [(r["group"], TopicPartition(r["target_topic"], r["partition"])) for r in rows]
        board.checkpointed(flow_config.flow, written, took_ms)
    tell_groups(site, flow_config, board)


def tell_groups(site: Site, flow_config: FlowConfig, board: Board) -> None:
    """Tell *board* what the flow's groups have committed, as they were last seen."""
    table = site.lake.of_cluster(flow_config.flow.source, GROUP_OFFSETS)
    commits = [
        GroupCommit(
            row["group"],
            TopicPartition(row["topic"], row["partition"]),
            row["topic_id"],
            row["committed"],
        )
        for row in latest_commits(table.rows()).to_pylist()
        if flow_config.groups.matches(row["group"]) and flow_config.replicates(row["topic"])
    ]
    board.committed(flow_config.flow, commits)
