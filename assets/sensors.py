"""Sensors and schedules. That no record is lost or doubled never depends on them."""

# No postponed annotations: Dagster reads them to find resources and configuration.

import dagster as dg

from assets.jobs import maintain_job, mirror_job
from assets.keys import asset_group, topic_partitions_def
from deltamirror.context import MirrorContext
from resources.dagster_resources import MirrorFile
from schemas.errors import DeltamirrorError

DISCOVER_INTERVAL_S = 30
SUPERVISE_INTERVAL_S = 15
PARTITIONS_PER_TICK = 5_000
"""Partitions added in one tick: SQLite takes no statement of any length."""

UNFINISHED_STATUSES = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dg.sensor(
    name="mirror_supervisor",
    job_name=mirror_job.name,
    minimum_interval_seconds=SUPERVISE_INTERVAL_S,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Keeps one run of `mirror` going. Leave it off where `deltamirror run` runs.",
)
def mirror_supervisor(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Ask for a run of `mirror` where none is on its way."""
    of_mirror = dg.RunsFilter(job_name=mirror_job.name, statuses=UNFINISHED_STATUSES)
    if context.instance.get_runs_count(of_mirror):
        return dg.SkipReason("a run is on its way")
    return dg.RunRequest()


daily_maintenance = dg.ScheduleDefinition(
    name="daily_maintain",
    job_name=maintain_job.name,
    cron_schedule="17 3 * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Maintains the lake once a day. It waits for the end of a run of `mirror`.",
)


def discovery_sensor(alias: str) -> dg.SensorDefinition:
    """Return the sensor that makes the topics of source cluster *alias* partitions."""

    @dg.sensor(
        name=f"discover_{asset_group(alias)}",
        minimum_interval_seconds=DISCOVER_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Adds the topics of {alias} as partitions of its assets and its flows'.",
    )
    def _discover(context: dg.SensorEvaluationContext, file: MirrorFile) -> dg.SensorResult:
        try:
            mirror_context = MirrorContext(file.config())
        except DeltamirrorError as error:
            return dg.SensorResult(skip_reason=str(error))
        try:
            topics, trouble = _list_topics(mirror_context, alias)
            flows = [each for each in mirror_context.config.flows if each.flow.source == alias]
            wanted = {alias: {t for t in topics if any(flow.replicates(t) for flow in flows)}}
            wanted |= {each.flow.key: set(filter(each.replicates, topics)) for each in flows}
        finally:
            mirror_context.close()
        requests = [
            topic_partitions_def(owner).build_add_request(new[:PARTITIONS_PER_TICK])
            for owner, found in wanted.items()
            if (new := sorted(found - _known_partitions(context.instance, owner)))
        ]
        return dg.SensorResult(
            dynamic_partitions_requests=requests,
            skip_reason=trouble or f"{len(wanted[alias])} topics are known",
        )

    return _discover


def _list_topics(mirror_context: MirrorContext, alias: str) -> tuple[set[str], str | None]:
    """Return the topics that are staged or on the cluster, and why the cluster was not asked."""
    trouble = None
    topics: set[str] = set()
    try:
        topics.update(
            mirror_context.lake.segments(alias).rows(["topic"])["topic"].unique().to_pylist()
        )
        # Answers within 3 s or not at all; a tick has 60 s.
        mirror_context.cluster(alias).probe()
        topics.update(
            name
            for name, topic in mirror_context.cluster(alias).topics().items()
            if not topic.is_internal
        )
    except DeltamirrorError as error:
        trouble = str(error)
    return topics, trouble


def _known_partitions(instance: dg.DagsterInstance, owner: str) -> set[str]:
    return set(instance.get_dynamic_partitions(str(topic_partitions_def(owner).name)))
