"""Output of `verify` as a table and as JSON; tests/stories compares real clusters."""

import pytest

from pipeline.record_digest import Digest
from resources.delta.arrow_schema import ROW_SCHEMA
from resources.delta.stage_writer import RecordsDirectory
from schemas.staging.segment import Segment
from schemas.tables import VERIFICATION
from schemas.verification import KINDS
from tests.pipeline.verification.test_audits import rows
from tests.support.cli import answer, run
from tests.support.lake import FLOW, ORDERS, REMOTE, ScriptedContext, replay, stage


@pytest.fixture
def staged(halfway_context, lake, tmp_path, monkeypatch):
    """Twenty records of `orders`, in a file and a segment of a new lake."""
    context = ScriptedContext(tmp_path / "another")
    monkeypatch.setattr("deltamirror.context.MirrorContext", lambda _: context)
    monkeypatch.setattr(context, "close", lambda: None)
    records = context.lake.records("us-east")
    records.refresh()
    batch = rows(*((i, b"%d" % i) for i in range(20)))
    digest = Digest()
    size = digest.add(batch)
    with RecordsDirectory(records.path).records_file(1) as file:
        file.write(ORDERS.slot, _record_rows(batch))
        made = file.close()
    segment = Segment(
        "orders", "life1", 0, 0, 20, 20, size, 0, 19, 1, 1, None, 0, 20, 20, "",
        digest.hexdigest(), 1, 1,
    )  # fmt: skip
    records.stage([made], [segment], {segment.source: None})
    context.lake.segments("us-east").seal()
    return context


def _record_rows(batch):
    return type(batch).from_pylist(
        [
            {"topic": "orders", "topic_id": "life1", "partition": 0, **row}
            for row in batch.to_pylist()
        ],
        ROW_SCHEMA,
    )


def test_verify_prints_one_json_object_with_the_promised_fields_and_stores_its_result(staged):
    found = answer("verify", "--staged")

    assert found["records"] == 20
    assert [found[kind] for kind in KINDS] == [0, 0, 0, 0]
    (flow,) = found["flows"]
    assert (flow["flow"], flow["records"], flow["altered"]) == (FLOW.name, 20, 0)
    assert (found["differences"], found["errors"]) == ([], [])
    (row,) = staged.lake.flow_table(FLOW, VERIFICATION).rows().to_pylist()
    assert (row["topic"], row["partition"], row["records"], row["lost"]) == ("orders", 0, 20, 0)


def test_verify_exits_with_1_and_names_the_records_of_a_deleted_file(staged):
    records = staged.lake.records("us-east")
    (file,) = records.files()
    (records.path / file.path).unlink()

    found = answer("verify", "--staged", code=1)

    (difference,) = found["differences"]
    assert difference.keys() >= {"flow", "topic", "partition", "offset", "kind"}
    assert (difference["kind"], difference["offset"]) == ("lost", 0)
    assert file.path in difference["detail"]
    shown = run("verify", "--staged", code=1)
    assert "verified 0 records: 20 lost, 0 duplicated, 0 reordered, 0 altered" in shown.stdout


def test_a_side_whose_cluster_is_down_is_an_error_and_the_other_sides_are_reported(staged):
    staged.source.is_down = True

    found = answer("verify", "--source", "--staged", code=1)

    assert [error["type"] for error in found["errors"]] == ["UnreachableError"]
    assert found["records"] == 20
    assert "does not answer" in run("verify", "--source", "--staged", code=1).stdout


def test_an_unreadable_staged_file_is_an_error_if_the_stage_itself_is_not_compared(staged):
    staged.source.hold(ORDERS, 20, low=20)
    records = staged.lake.records("us-east")
    (file,) = records.files()
    (records.path / file.path).unlink()

    found = answer("verify", "--source", code=1)

    assert [(e["type"], e["topic"]) for e in found["errors"]] == [("StagedFileError", "orders")]


def test_offsets_without_a_segment_are_an_error_of_the_stage(staged):
    stage(staged, ORDERS, 22, 23, version=2)

    found = answer("verify", "--staged", code=1)

    assert [(e["type"], e["topic"]) for e in found["errors"]] == [
        ("StageIncompleteError", "orders")
    ]
    assert "22" in found["errors"][0]["message"]


def test_records_that_the_source_no_longer_has_are_no_difference(staged):
    staged.source.hold(ORDERS, 25, low=25)
    assert answer("verify", "--source", "--staged")["gone_upstream"] == 20
    staged.source.hold(ORDERS, 5, topic_id="life2")
    assert answer("verify", "--source", "--staged")["gone_upstream"] == 0


def test_a_re_created_target_topic_is_an_error_of_its_partitions(staged):
    replay(staged, (0, 0, 20), target_life="former")
    staged.target.hold(REMOTE, 0, topic_id="target2")
    staged.target.topic_configs = lambda names: {}

    found = answer("verify", "--target", code=1)

    assert [(e["type"], e["partition"]) for e in found["errors"]] == [("TargetChangedError", 0)]


def test_a_topic_that_is_not_staged_is_an_error(staged):
    assert answer("verify", "--topic", "nope", code=1)["error"]["type"] == "TopicMissingError"


def test_verify_compares_nothing_if_nothing_is_staged(halfway_context, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "deltamirror.context.MirrorContext", lambda _: ScriptedContext(tmp_path / "new")
    )

    assert answer("verify")["records"] == 0
    assert not (tmp_path / "new").exists()
