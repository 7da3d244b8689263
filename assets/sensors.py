"""Dagster sensors and schedules. Exactly-once mirroring does not depend on them."""

# Without `from __future__ import annotations`: Dagster reads annotations to find resources.

import dagster as dg

from assets.jobs import maintain_job, mirror_job
from assets.keys import asset_group, topic_partitions_def
from deltamirror.context import MirrorContext
from resources.dagster_resources import MirrorFile
from schemas.errors.base import DeltamirrorError

DISCOVER_INTERVAL_S = 30
SUPERVISE_INTERVAL_S = 15
PARTITIONS_PER_TICK = 5_000
"""Maximum partitions added in one tick, because SQLite limits the length of a statement."""

UNFINISHED_STATUSES = [
    dg.DagsterRunStatus[name]
    for name in ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")
]


@dg.sensor(
    name="mirror_supervisor",
    job_name=mirror_job.name,
    minimum_interval_seconds=SUPERVISE_INTERVAL_S,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Keeps one run of `mirror` active. Leave it off if `deltamirror run` is running.",
)
def mirror_supervisor(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Request a run of `mirror` if none is queued or running."""
    of_mirror = dg.RunsFilter(job_name=mirror_job.name, statuses=UNFINISHED_STATUSES)
    if context.instance.get_runs_count(of_mirror):
        return dg.SkipReason("a run of `mirror` is queued or running")
    return dg.RunRequest()


daily_maintenance = dg.ScheduleDefinition(
    name="daily_maintain",
    job_name=maintain_job.name,
    cron_schedule="17 3 * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Maintains the stages once a day. It waits for the end of a run of `mirror`.",
)


def discovery_sensor(alias: str) -> dg.SensorDefinition:
    """Return the sensor that adds the topics of source cluster *alias* as partitions."""

    @dg.sensor(
        name=f"discover_{asset_group(alias)}",
        minimum_interval_seconds=DISCOVER_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Adds the topics of {alias} as partitions of its own and its flows' assets.",
    )
    def _discover(context: dg.SensorEvaluationContext, file: MirrorFile) -> dg.SensorResult:
        try:
            mirror_context = MirrorContext(file.config())
        except DeltamirrorError as error:
            return dg.SensorResult(skip_reason=str(error))
        try:
            topics, problem = _list_topics(mirror_context, alias)
            flows = [each for each in mirror_context.config.flows if each.flow.source == alias]
            wanted = {alias: {t for t in topics if any(flow.replicates(t) for flow in flows)}}
            wanted |= {each.flow.key: set(filter(each.replicates, topics)) for each in flows}
        finally:
            mirror_context.close()
        requests = []
        for owner, found in wanted.items():
            partitions = topic_partitions_def(owner)
            known = context.instance.get_dynamic_partitions(str(partitions.name))
            if new := sorted(found - set(known)):
                requests.append(partitions.build_add_request(new[:PARTITIONS_PER_TICK]))
        return dg.SensorResult(
            dynamic_partitions_requests=requests,
            skip_reason=problem or f"{len(wanted[alias])} topics are known",
        )

    return _discover


def _list_topics(mirror_context: MirrorContext, alias: str) -> tuple[set[str], str | None]:
    """Return the staged topics and those of the cluster, and the error if one cannot be read."""
    topics: set[str] = set()
    try:
        staged = mirror_context.lake.segments(alias).rows(["topic"])["topic"]
        topics.update(staged.unique().to_pylist())
        cluster = mirror_context.cluster(alias)
        # Fails after 3 s without an answer; a sensor's tick has 60 s.
        cluster.probe()
        topics.update(name for name, topic in cluster.topics().items() if not topic.is_internal)
    except DeltamirrorError as error:
        return topics, str(error)
    return topics, None
