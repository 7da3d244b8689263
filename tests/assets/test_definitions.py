import re

import dagster as dg
import pytest

from assets.asset_checks import count_falling
from assets.definitions import build_definitions
from assets.event_reporter import TOPIC_INTERVAL_S, EventBuffer, EventPublisher
from deltamirror.listener import installed_listeners
from schemas.config.flow import Flow
from schemas.kafka.partition import TopicPartition
from schemas.offset_map import OffsetRun
from schemas.replay.slot_work import CommittedBatch, Progress
from schemas.staging.segment import Segment
from tests.support.lake import FLOW, ORDERS, ScriptedContext, replay, stage

SECRET = "hunter2-is-my-password"

TWO_WAYS = f"""
clusters = us-east, eu-west
us-east.bootstrap.servers = 127.0.0.1:1
eu-west.bootstrap.servers = 127.0.0.1:1
us-east.security.protocol = SASL_PLAINTEXT
us-east.sasl.mechanism = PLAIN
us-east.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \
    username="m" password="{SECRET}";
us-east->eu-west.enabled = true
eu-west->us-east.enabled = true
deltamirror.lake = LAKE
"""


@pytest.fixture
def path(tmp_path, lake):
    path = tmp_path / "mm2.properties"
    path.write_text(TWO_WAYS.replace("LAKE", str(lake)))
    return path


@pytest.fixture
def defs(path):
    return build_definitions(path)


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def key(*parts):
    return dg.AssetKey(list(parts))


def test_every_cluster_and_every_flow_has_its_assets(defs):
    found = {spec.key for spec in defs.resolve_all_asset_specs()}

    for source, target in (("us-east", "eu-west"), ("eu-west", "us-east")):
        assert {key(source, name) for name in ("topics", "records", "group_offsets")} <= found
        flow = f"{source}__{target}"
        names = ("offset_map", "checkpoints", "lag", "heartbeats", "verification")
        assert {key(flow, name) for name in names} <= found
        assert key(target, f"from_{source}") in found


def test_lineage_reads_from_source_topics_to_remote_topics(defs):
    graph = defs.resolve_asset_graph()

    def parents(*parts):
        return graph.get(key(*parts)).parent_keys

    assert parents("us-east", "records") == {key("us-east", "topics")}
    assert parents("us-east__eu-west", "offset_map") == {key("us-east", "records")}
    assert parents("eu-west", "from_us-east") == {key("us-east__eu-west", "offset_map")}


def test_topics_are_partitions_of_the_stage_and_of_the_offset_map(defs):
    graph = defs.resolve_asset_graph()

    records = graph.get(key("us-east", "records")).partitions_def
    offset_map = graph.get(key("us-east__eu-west", "offset_map")).partitions_def
    assert (records.name, offset_map.name) == ("us-east__topics", "us-east__eu-west__topics")


def test_definitions_load_and_their_jobs_resolve_without_any_network(defs):
    dg.Definitions.validate_loadable(defs)

    assert defs.resolve_job_def("mirror").tags["flow"] == "all"


def test_resources_do_not_contain_secrets_of_the_file(defs):
    assert SECRET not in repr(defs.resources)
    shown = [getattr(each, "_resolved_config_dict", {}) for each in defs.resources.values()]
    assert SECRET not in repr(shown)


@pytest.mark.parametrize(
    "text", [pytest.param(None, id="missing"), pytest.param("clusters = \nx = y\n", id="bad")]
)
def test_a_missing_or_invalid_file_gives_an_empty_code_location_and_a_log_message(
    tmp_path, caplog, text
):
    path = tmp_path / "other.properties"
    if text is not None:
        path.write_text(text)

    defs = build_definitions(path)

    assert list(defs.resolve_all_asset_specs()) == []
    assert "other.properties" in caplog.text or "clusters" in caplog.text


# Sensors


def tick(defs, name, instance):
    with dg.build_sensor_context(
        instance=instance, definitions=defs, resources=dict(defs.resources)
    ) as context:
        return defs.resolve_sensor_def(name).evaluate_tick(context)


def test_discovery_finds_staged_topics_while_the_source_is_down(defs, lake, instance):
    stage(ScriptedContext(lake), ORDERS, 0, 5)

    ticked = tick(defs, "discover_us_east", instance)

    added = {each.partitions_def_name: each.partition_keys for each in
             ticked.dynamic_partitions_requests}  # fmt: skip
    assert added == {"us-east__topics": ["orders"], "us-east__eu-west__topics": ["orders"]}
    assert "does not answer" in ticked.skip_message


def test_discovery_adds_nothing_twice(defs, lake, instance):
    stage(ScriptedContext(lake), ORDERS, 0, 5)
    for name in ("us-east__topics", "us-east__eu-west__topics"):
        instance.add_dynamic_partitions(name, ["orders"])

    assert not tick(defs, "discover_us_east", instance).dynamic_partitions_requests


def test_the_supervisor_requests_a_run_only_if_none_is_queued_or_running(defs, instance):
    assert len(tick(defs, "mirror_supervisor", instance).run_requests) == 1

    mirror = defs.resolve_job_def("mirror")
    instance.create_run_for_job(mirror, status=dg.DagsterRunStatus.STARTED)

    assert tick(defs, "mirror_supervisor", instance).run_requests == []
    supervisor = defs.resolve_sensor_def("mirror_supervisor")
    assert supervisor.default_status is dg.DefaultSensorStatus.STOPPED


# Checks


def evaluate(defs, instance, check):
    """Run the asset check *check* alone, and return what it found."""
    asset, name = check
    job = dg.define_asset_job("checking", dg.AssetSelection.checks(dg.AssetCheckKey(asset, name)))
    merged = dg.Definitions.merge(defs, dg.Definitions(jobs=[job]))
    done = merged.resolve_job_def("checking").execute_in_process(instance=instance)
    (found,) = done.get_asset_check_evaluations()
    return found


def test_an_accepted_gap_fails_the_check_and_a_gap_of_markers_is_only_counted(defs, lake, instance):
    context = ScriptedContext(lake)
    gaps = key("us-east", "records"), "gaps"
    stage_gap(context, 0, 5, "compacted, transaction markers or aborted")
    assert evaluate(defs, instance, gaps).passed

    stage_gap(context, 5, 9, "expired, accepted")
    found = evaluate(defs, instance, gaps)

    assert not found.passed
    assert found.metadata["expired, accepted"].value == 4


def test_the_stage_has_the_documented_columns(defs, lake, instance):
    context = ScriptedContext(lake)
    context.lake.ensure_exists()
    context.lake.records("us-east").refresh()

    assert evaluate(defs, instance, (key("us-east", "records"), "table_schema")).passed


def test_runs_that_do_not_increase_fail_the_check(defs, lake, instance):
    context = ScriptedContext(lake)
    rising = key("us-east__eu-west", "offset_map"), "rising_runs"
    replay(context, (0, 0, 3), (5, 4, 2))
    assert evaluate(defs, instance, rising).passed

    replay(context, (4, 9, 2))
    found = evaluate(defs, instance, rising)

    assert not found.passed
    assert found.metadata["falling"].value == 1


def test_runs_of_another_incarnation_of_the_target_may_start_again_at_0():
    run = {"incarnation": "a", "partition": 0, "target_topic": "t", "target_partition": 0}
    incarnations = [
        {
            **run,
            "target_topic_id": topic_id,
            "upstream_start": 0,
            "downstream_start": 0,
            "length": 3,
        }
        for topic_id in ("one", "two")
    ]

    assert count_falling(incarnations) == 0
    assert count_falling([incarnations[0], incarnations[0]]) == 1


def test_parity_fails_until_a_comparison_was_made(defs, lake, instance):
    parity = key("us-east__eu-west", "verification"), "parity"

    assert not evaluate(defs, instance, parity).passed


def stage_gap(context, start, end, cause):
    row = {
        "topic": "orders", "topic_id": "life1", "partition": 0, "start": start, "end": end,
        "count": 0, "size_bytes": 0, "low": 0, "stable": end, "high": end, "gap_cause": cause,
        "digest": "", "staged_at_ms": 1, "version": end, "sequence": 1,
    }  # fmt: skip
    context.lake.segments("us-east").append([row])


# Jobs


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        pytest.param({}, "set flow to one of us-east->eu-west, eu-west->us-east", id="flow"),
        pytest.param(
            {"flow": "us-east->eu-west", "as_of": "noon"}, "as_of: noon is not a time", id="time"
        ),
        pytest.param(
            {"flow": "us-east->eu-west"}, "there is no topic orders staged", id="topic not staged"
        ),
    ],
)
def test_an_invalid_replay_configuration_fails_with_a_message(defs, instance, config, sentence):
    launchpad = {"ops": {"replay_topic": {"config": {"topic": "orders", **config}}}}
    done = defs.resolve_job_def("replay").execute_in_process(
        launchpad, instance=instance, raise_on_error=False
    )

    (failed,) = done.get_step_failure_events()
    assert sentence in failed.event_specific_data.user_failure_data.description


# Events


def segment(topic="orders", start=0, count=5):
    return Segment(
        topic, "life1", 0, start, start + count, count, 10 * count, start, start + count - 1, 1, 1,
        0, 0, start + count, start + count, "", "", 1, 1,
    )  # fmt: skip


def move(runs):
    after = Progress(9, "life1", "target1")
    at = TopicPartition("orders", 0)
    return CommittedBatch(at, at, None, after, runs, sum(run.length for run in runs))


def test_the_first_event_of_a_topic_is_published_at_once_and_the_next_after_30_s():
    buffer = EventBuffer({(key("us-east", "records"), "orders"): 100})
    buffer.staged("us-east", [segment(start=0)])
    first = buffer.next_event(0.0)
    buffer.staged("us-east", [segment(start=5)])
    buffer.staged("us-east", [segment(start=10)])

    assert first.metadata["dagster/row_count"] == 105
    assert buffer.next_event(TOPIC_INTERVAL_S - 1) is None
    second = buffer.next_event(TOPIC_INTERVAL_S)
    assert second.metadata == {
        "records": 10, "size_bytes": 100, "gaps": 0, "first_offset": 5, "last_offset": 14,
        "dagster/row_count": 115,
    }  # fmt: skip
    assert buffer.next_event(10 * TOPIC_INTERVAL_S) is None


def test_events_are_returned_one_at_a_time_the_longest_waiting_first():
    buffer = EventBuffer()
    buffer.staged("us-east", [segment("orders"), segment("payments")])
    events = [buffer.next_event(0.0), buffer.next_event(1.0), buffer.next_event(2.0)]

    assert [each and each.topic for each in events] == ["orders", "payments", None]


def test_the_end_of_a_run_publishes_the_rest_and_adds_topics_as_partitions(instance):
    buffer = EventBuffer()
    events = []
    publisher = EventPublisher(buffer, instance, events.append)
    buffer.staged("us-east", [segment()])
    publisher.publish_due(0.0)
    buffer.staged("us-east", [segment(start=5)])
    buffer.replayed(FLOW, [move((OffsetRun(0, 0, 5), OffsetRun(5, 6, 4)))])
    publisher.publish_rest(1.0)

    assert [(event.asset_key, event.partition) for event in events] == [
        (key("us-east", "records"), "orders"),
        (key("us-east__eu-west", "offset_map"), "orders"),
        (key("us-east", "records"), "orders"),
    ]
    assert events[1].metadata["last_offset"].value == 9
    for name in ("us-east__topics", "us-east__eu-west__topics"):
        assert instance.get_dynamic_partitions(name) == ["orders"]


def test_a_run_without_dagster_home_has_no_listener(monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)

    assert installed_listeners() == []


def test_a_run_with_dagster_home_reports_materializations(monkeypatch, tmp_path):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (listener,) = installed_listeners()
    listener.staged("us-east", [segment()])
    listener.close()

    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        event = instance.get_latest_materialization_event(key("us-east", "records"))
        assert event.asset_materialization.partition == "orders"
        assert instance.get_dynamic_partitions("us-east__topics") == ["orders"]


def test_a_dagster_failure_is_logged_and_not_raised(monkeypatch, tmp_path, caplog):
    (tmp_path / "dagster.yaml").write_text("nonsense: {true}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))

    assert installed_listeners() == []
    assert re.search("Dagster reports are off: .+", caplog.text)


def test_group_names_have_only_characters_that_dagster_accepts(defs):
    groups = {spec.group_name for spec in defs.resolve_all_asset_specs()}

    assert groups == {"us_east", "eu_west", "us_east__eu_west", "eu_west__us_east"}
    assert Flow("us-east", "eu-west").key == "us-east__eu-west"
