"""Orders: checked before they are written, and told who carries them out."""

import pytest

from deltamirror.control import ControlTable
from tests.support.cli import answer, run

FLOW = "us-east->eu-west"


def orders(context, scope):
    found = ControlTable(context.lake.control).requests_for(scope)
    return [(each.order, each.topic, each.partition) for each in found]


@pytest.mark.parametrize(
    ("command", "given"),
    [
        pytest.param(["pause"], ("pause", None, None), id="a flow"),
        pytest.param(["pause", "--topic", "orders"], ("pause", "orders", None), id="a topic"),
        pytest.param(
            ["resume", "--topic", "orders", "--partition", "0"],
            ("resume", "orders", 0),
            id="a partition",
        ),
        pytest.param(
            ["resume", "--restart-topic", "orders"],
            ("restart", "orders", None),
            id="a topic from its beginning",
        ),
    ],
)
def test_a_request_for_a_flow_is_written(halfway_context, command, given):
    name, *rest = command

    data = answer(name, "--flow", FLOW, *rest)

    assert orders(halfway_context, FLOW) == [given]
    assert data["is_running"] is False


def test_a_gap_is_accepted_for_a_source_cluster(halfway_context):
    answer("accept-gap", "--cluster", "us-east", "--topic", "orders")

    assert orders(halfway_context, "us-east") == [("accept-gap", "orders", None)]


def test_the_answer_reports_which_run_applies_the_request(halfway_context):
    text = run("pause", "--flow", FLOW, "--topic", "orders").stdout
    assert text.startswith("Noted. The next `deltamirror run` does not replay orders of us-east")

    halfway_context.status_file.post(f"replay {FLOW}", "running", None, [])
    text = run("resume", "--flow", FLOW, "--topic", "orders").stdout
    assert (
        text == "Noted. The running loop replays orders of us-east->eu-west, also after an error.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        pytest.param(["pause", "--flow", "x->y"], 2, "UnknownFlowError", id="no such flow"),
        pytest.param(
            ["accept-gap", "--cluster", "eu-west", "--topic", "orders"],
            2,
            "ConfigError",
            id="not a source",
        ),
        pytest.param(
            ["pause", "--flow", FLOW, "--topic", "oders"],
            1,
            "TopicMissingError",
            id="no such topic",
        ),
        pytest.param(
            ["resume", "--flow", FLOW, "--topic", "orders", "--partition", "7"],
            1,
            "TopicMissingError",
            id="no such partition",
        ),
        pytest.param(
            ["pause", "--flow", FLOW, "--partition", "0"], 2, "UsageError", id="which topic's"
        ),
        pytest.param(
            ["resume", "--flow", FLOW, "--topic", "orders", "--restart-topic", "orders"],
            2,
            "UsageError",
            id="two things at once",
        ),
    ],
)
def test_an_invalid_request_is_an_error_and_is_not_written(halfway_context, arguments, code, error):
    data = answer(*arguments, code=code)

    assert data["error"]["type"] == error
    assert not halfway_context.lake.control.exists()


def test_a_staged_topic_is_known_while_the_source_is_down(halfway_context):
    halfway_context.source.is_down = True

    answer("pause", "--flow", FLOW, "--topic", "orders")
    answer("pause", "--flow", FLOW, "--topic", "never-staged", code=1)

    assert orders(halfway_context, FLOW) == [("pause", "orders", None)]
