"""`maintain` and `replay` as a script meets them."""

import pytest

from resources.coordination.lease import Lease
from tests.support.cli import answer, run
from tests.support.staged_lake import in_one_slot, stage_records

FLOW = "us-east->eu-west"
(ORDERS,) = in_one_slot(1)


@pytest.fixture
def staged(halfway_context):
    for i in range(5):
        stage_records(halfway_context, (ORDERS, i * 10, i * 10 + 10), staged_at_ms=1000 * i)
    return halfway_context


def replay(*args, code=0):
    return answer("replay", "--flow", FLOW, "--topic", ORDERS.topic, *args, code=code)


def test_maintain_prints_its_counts(staged):
    (done,) = answer("maintain")["clusters"]

    assert (done["alias"], done["joined"], done["joined_into"]) == ("us-east", 5, 1)


def test_maintain_ends_with_1_while_another_process_stages(staged, lake):
    with Lease(lake, "stage us-east"):
        data = answer("maintain", "--cluster", "us-east", code=1)

    assert data["error"]["type"] == "LeaseHeldError"


def test_maintain_accepts_only_source_clusters(staged):
    assert answer("maintain", "--cluster", "eu-west", code=2)["error"]["type"] == "ConfigError"


@pytest.mark.parametrize(
    ("arguments", "range_"),
    [
        pytest.param(["--as-of", "1970-01-01T00:00:02Z"], (0, 30), id="as of a time"),
        pytest.param(["--from-offset", "7", "--to-offset", "9"], (7, 9), id="by offset"),
        pytest.param(["--from-time", "12", "--to-time", "31"], (12, 31), id="by time"),
    ],
)
def test_a_dry_run_shows_the_plan_and_stores_none(staged, arguments, range_):
    data = replay("--dry-run", *arguments)

    (found,) = data["ranges"]
    assert (found["start"], found["end"]) == range_
    assert (data["state"], data["records"]) == ("dry run", None)
    assert not staged.lake.replays.exists()


def test_the_table_of_a_dry_run_names_the_target_topic(staged):
    text = run("replay", "--flow", FLOW, "--topic", ORDERS.topic, "--dry-run").stdout

    assert "Dry run: nothing was written. The records would be written to replay." in text


def test_offsets_and_times_together_are_wrong_usage(staged):
    data = replay("--as-of", "5", "--from-offset", "3", code=2)

    assert data["error"]["type"] == "UsageError"


def test_a_topic_that_is_not_staged_is_an_error(halfway_context):
    data = answer("replay", "--flow", FLOW, "--topic", "nothing", "--dry-run", code=1)

    assert data["error"]["type"] == "TopicMissingError"


@pytest.mark.parametrize("other", [["--rebuild-map"], ["--flow", FLOW]])
def test_restage_can_be_combined_with_cluster_only(halfway_context, other):
    assert answer("maintain", "--restage", *other, code=2)["error"]["type"] == "UsageError"
