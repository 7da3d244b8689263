"""What `status`, `lag`, `translate` and `groups` print, for people and for scripts."""

import json

import pytest
from click.testing import CliRunner

from assets import site as site_module
from assets.cli import main
from assets.cli_options import iso, time_ms
from assets.console import Console
from tests.assets.places import FLOW, ORDERS, REMOTE, FakeSite, commit, config, replay, stage

PARTITION = {
    "topic", "partition", "target_topic", "source_end", "staged", "replayed", "lag", "age_ms",
}  # fmt: skip
TRANSLATION = {
    "flow", "topic", "partition", "upstream_offset", "target_topic", "target_partition",
    "downstream_offset",
}  # fmt: skip


@pytest.fixture
def site(lake, monkeypatch):
    site = FakeSite(lake)
    site.source.hold(ORDERS, 20)
    site.target.hold(REMOTE, 8)
    site.target.progress(REMOTE, 16)
    stage(site, ORDERS, 0, 18)
    replay(site, (10, 3, 2), (14, 6, 2))
    commit(site, "billing", 12, at=1_000)
    monkeypatch.setattr(Console, "config", lambda self: config(lake))
    monkeypatch.setattr(site_module, "Site", lambda _: site)
    monkeypatch.setattr(site, "close", lambda: None)
    return site


def run(*args, code=0):
    result = CliRunner().invoke(main, args)
    assert result.exit_code == code, result.output
    return result


def answer(*args, code=0):
    return json.loads(run(*args, "--format", "json", code=code).stdout)


@pytest.mark.parametrize("command", ["status", "lag"])
def test_status_and_lag_are_one_json_object_with_the_promised_fields(site, command):
    (flow,) = answer(command)["flows"]

    (orders,) = flow["partitions"]
    assert {"flow", "state", "error", "partitions"} <= flow.keys()
    assert orders.keys() >= PARTITION
    assert (orders["source_end"], orders["staged"], orders["replayed"]) == (20, 18, 16)


def test_status_for_people_names_state_topic_and_trouble(site):
    trouble = {"topic": "orders", "partition": 0, "error": "the record is too large"}
    site.bulletin.post(f"replay {FLOW.name}", "failed", "1 partition failed", [trouble])

    shown = run("status").stdout

    for word in (FLOW.name, "failed", "us-east.orders", "the record is too large"):
        assert word in shown


def test_lag_for_people_has_a_line_for_each_partition(site):
    assert "orders[0]" in run("lag", "--flow", FLOW.name).stdout


def test_a_flow_nobody_enabled_is_wrong_usage(site):
    assert answer("status", "--flow", "a->b", code=2)["error"]["type"] == "UnknownFlowError"


def test_translate_answers_with_the_promised_fields(site):
    at = answer("translate", "--flow", FLOW.name, *["--topic", "orders", "--partition", "0"],
                "--offset", "12")  # fmt: skip

    assert at.keys() >= TRANSLATION
    assert (at["target_topic"], at["target_partition"]) == ("us-east.orders", 0)
    assert (at["upstream_offset"], at["downstream_offset"]) == (12, 6)


@pytest.mark.parametrize("topic", ["orders", "us-east.orders"])
def test_translate_reverse_goes_back_from_either_name_of_the_topic(site, topic):
    at = answer("translate", "--flow", FLOW.name, "--reverse", "--topic", topic,
                *["--partition", "0", "--offset", "5"])  # fmt: skip

    assert (at["topic"], at["upstream_offset"], at["downstream_offset"]) == ("orders", 14, 5)


def test_where_nothing_has_arrived_yet_the_downstream_offset_is_null(site):
    at = answer("translate", "--flow", FLOW.name, *["--topic", "orders", "--partition", "3"],
                "--offset", "12")  # fmt: skip

    assert at["downstream_offset"] is None


def test_a_topic_that_is_not_mirrored_is_an_error(site):
    error = answer("translate", "--flow", FLOW.name, "--topic", "eu-west.orders",
                   *["--partition", "0", "--offset", "12"], code=1)["error"]  # fmt: skip

    assert error["type"] == "NothingToTranslateError"


def test_a_group_is_translated_with_all_its_partitions(site):
    found = answer("translate", "--flow", FLOW.name, "--group", "billing")

    assert (found["flow"], found["group"], found["as_of"]) == (FLOW.name, "billing", None)
    assert [at["downstream_offset"] for at in found["partitions"]] == [6]
    assert "orders[0]" in run("translate", "--flow", FLOW.name, "--group", "billing").stdout


def test_a_group_is_translated_as_of_a_time(site):
    args = ("translate", "--flow", FLOW.name, "--group", "billing", "--as-of")

    assert answer(*args, "1970-01-01T00:00:01Z")["as_of"] == "1970-01-01T00:00:01.000Z"
    assert "groups snapshot" in answer(*args, "999", code=1)["error"]["hint"]
    assert answer(*args, "yesterday", code=2)["error"]["type"] == "UsageError"


@pytest.mark.parametrize(
    "args",
    [
        pytest.param((), id="nothing to translate"),
        pytest.param(("--topic", "orders", "--partition", "0"), id="no offset"),
        pytest.param(("--group", "g", "--topic", "orders"), id="a group and an offset"),
    ],
)
def test_translate_says_what_it_needs(site, args):
    run("translate", "--flow", FLOW.name, *args, code=2)


def test_a_snapshot_tells_what_changed_and_which_group_it_could_not_read(site):
    site.source.offsets |= {"billing": {ORDERS: 14}, "odd": {}}
    site.source.unreadable.add("odd")

    (found,) = answer("groups", "snapshot", code=1)["clusters"]

    assert (found["cluster"], found["changed"]) == ("us-east", 1)
    assert "odd" in found["troubles"][0]


def test_a_plan_is_shown_with_its_limits(site):
    plan = answer("groups", "plan", "--flow", FLOW.name)

    (billing,) = plan["groups"]
    assert "read_uncommitted" in plan["note"]
    assert (billing["group"], billing["partitions"][0]["resumes_at"]) == ("billing", 6)
    assert "us-east.orders[0]" in run("groups", "plan", "--flow", FLOW.name).stdout


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-15T00:13:20.5+02:00", 1_700_000_000_500),
    ],
)
def test_a_time_is_iso_8601_or_milliseconds(text, ms):
    assert time_ms(text) == ms
    assert time_ms(iso(ms)) == ms
