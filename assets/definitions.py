"""Build Dagster's definitions from the configuration file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import dagster as dg

from assets.asset_checks import cluster_checks, flow_checks
from assets.flow_assets import checkpoints, group_offsets, heartbeats, lag, verification
from assets.jobs import maintain_job, mirror_job, replay_job
from assets.offset_map import offset_map, remote_topics, replays
from assets.records import records, source_topics
from assets.sensors import daily_maintenance, discovery_sensor, mirror_supervisor
from resources.config.load import read_config
from resources.dagster_resources import MirrorFile, Spark
from schemas.config.config import CONFIG_VARIABLE
from schemas.errors.base import DeltamirrorError

log = logging.getLogger(__name__)


def build_definitions(path: Path | None = None) -> dg.Definitions:
    """Return the definitions for the file at *path*; None means that of DELTAMIRROR_CONFIG.

    This connects to no cluster and opens no lake, because every Dagster run loads the definitions
    again. If the file is missing or invalid, this logs a warning and returns no assets.
    """
    path = path or Path(os.environ.get(CONFIG_VARIABLE, "mm2.properties"))
    try:
        config = read_config(path)
    except DeltamirrorError as error:
        log.warning("there are no assets, because of the configuration: %s. %s", error, error.hint)
        return dg.Definitions(executor=dg.in_process_executor)
    flows = [each.flow for each in config.flows]
    sources = config.sources()
    return dg.Definitions(
        assets=[
            *(make(alias) for alias in sources for make in (source_topics, records, group_offsets)),
            *(
                make(flow)
                for flow in flows
                for make in (offset_map, remote_topics, replays, checkpoints, lag, verification)
            ),
            *(heartbeats(each) for each in config.heartbeats if each.flow in flows),
        ],
        asset_checks=[
            *(check for alias in sources for check in cluster_checks(alias)),
            *(check for flow in flows for check in flow_checks(flow)),
        ],
        jobs=[mirror_job, replay_job, maintain_job],
        schedules=[daily_maintenance],
        sensors=[mirror_supervisor, *(discovery_sensor(alias) for alias in sources)],
        resources={"file": MirrorFile(path=str(path)), "spark": Spark()},
        # In one process: with a process per step, every step would start its own Spark.
        executor=dg.in_process_executor,
    )


defs = build_definitions()
