import json
from dataclasses import replace

import pytest

from benchmarks.ground import Ground
from benchmarks.meter import Cost
from benchmarks.mm2 import __main__ as comparison
from benchmarks.mm2 import pages, precision, results, rivals
from benchmarks.mm2.catch_up import CatchUp
from benchmarks.mm2.loads import Flights, Load
from benchmarks.mm2.parts import Stream
from benchmarks.mm2.precision import Precision
from resources.brokers import Broker
from resources.settings import read_config

CASE = {"size_bytes": 100, "records": 100, "partitions": 4, "compression": "none"}
COST = Cost(records=100, seconds=20.0, cpu_s=5.0, broker_cpu_s=1.0)


def run(*, first_s=10.0, last_s, before=0):
    return CatchUp(100, first_s, last_s, before, COST, 2**30)


def result():
    runs = {"mm2-stock": [run(last_s=20.0)], "deltamirror": [run(last_s=15.0)]}
    speeds = {name: [each.records_per_s for each in each_run] for name, each_run in runs.items()}
    return {
        "date": "2026-01-02",
        "commit": "abc",
        "command": "python -m benchmarks.mm2",
        "seconds": 125,
        "rounds": 1,
        "machine": {
            "cores": 2,
            "cpu": "a CPU",
            "memory_gib": 8,
            "kafka": "4.3.0",
            "java": "17",
            "python": "3.11",
        },
        "catch_up": [results.catch_up_row(name, CASE, each) for name, each in runs.items()],
        "catch_up_ratios": results.ratios(CASE, "records_per_s", speeds),
        "failover": [results.precision_row("deltamirror", Precision(72_000, 0, 0, 0))],
    }


@pytest.fixture
def on(tmp_path):
    """A ground whose brokers never start: nothing asks them anything."""
    return Ground(tmp_path, Broker("s", tmp_path / "s"), Broker("t", tmp_path / "t"))


def test_a_rate_counts_neither_the_start_nor_what_was_there_at_the_first_look():
    assert run(first_s=10.0, last_s=20.0, before=40).records_per_s == 6.0


def test_a_ratio_is_of_the_same_round():
    speeds = {"mm2-stock": [10.0, 20.0, 40.0], "deltamirror": [20.0, 60.0, 40.0]}

    (row,) = results.ratios({}, "records_per_s", speeds)

    assert (row["to"], row["median"], row["low"], row["high"]) == ("mm2-stock", 2.0, 1.0, 3.0)


def test_the_page_shows_medians_ratios_and_what_they_were_made_on():
    page = pages.markdown(result())

    assert "| 100 B, 4 partitions | deltamirror | 20 (20 - 20) | 10 (10 - 10) |" in page
    assert "| 100 B, 4 partitions | MirrorMaker 2, stock | 2 (2 - 2) |" in page
    assert "| 72,000 | deltamirror | 0 | 0 | 0 |" in page
    assert "`python -m benchmarks.mm2` on 2026-01-02, commit abc, in 2 minutes: 2 cores" in page


def test_tables_stand_between_the_marks_and_the_rest_of_the_page_stays(tmp_path):
    page = tmp_path / "page.md"
    short, full = pages.marks("mm2"), pages.marks("mm2-full")
    page.write_text("\n".join(["before", short[0], "short", short[1], full[0], "full", full[1]]))

    pages.fill(result(), "mm2-full", page)

    lines = page.read_text().splitlines()
    assert lines[:5] == ["before", short[0], "short", short[1], full[0]]
    assert lines[-1] == full[1]
    assert "full" not in lines


def test_readme_has_the_marks_of_both_comparisons():
    page = pages.PAGE.read_text()

    assert all(mark in page for name in ("mm2", "mm2-full") for mark in pages.marks(name))


def test_a_page_without_marks_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no marks\n")

    with pytest.raises(ValueError, match="has no <!-- mm2 -->"):
        pages.fill(result(), "mm2", page)


@pytest.mark.parametrize("rival", rivals.RIVALS, ids=lambda rival: rival.name)
def test_deltamirror_reads_each_rivals_file_too(on, rival):
    flow = rivals.flow(on, rival, "round0", "orders", more="{source}->target.tasks.max = 3\n")

    (found,) = read_config(flow.file).flows

    assert str(found.flow) == "round0->target"
    assert found.remote_topic("orders") == flow.remote("orders")


@pytest.mark.kafka
@pytest.mark.story
@pytest.mark.timeout(600)  # five rivals start, one after the other
def test_a_small_comparison_measures_everything_and_tells_no_path(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "LAGS", (0, 100))
    monkeypatch.setattr(precision, "STANDS_S", 2.0)
    monkeypatch.setattr("benchmarks.mm2.parts.FAILING_OVER", (rivals.OURS,))
    load = Load(100, 4_000)
    plan = comparison.Plan((load,), (Stream(500, warm_s=1.0, for_s=2.0),), load, rounds=1)

    monkeypatch.setattr("benchmarks.mm2.parts.RIVALS", (rivals.EXACTLY_ONCE, rivals.OURS))
    caught_up = comparison.run(tmp_path / "both", plan, ["catch-up"])
    monkeypatch.setattr("benchmarks.mm2.parts.RIVALS", (rivals.OURS,))
    plan = replace(plan, loads=(Flights(2_000),))
    found = comparison.run(tmp_path / "ours", plan, ["catch-up", "latency", "failover"])

    assert [row["records"] for row in caught_up["catch_up"]] == [4_000, 4_000]
    assert all(row["peak_mib"]["median"] > 100 for row in caught_up["catch_up"])
    assert [(row["data"], row["records"]) for row in found["catch_up"]] == [
        ("the demo's flights as JSON", 2_000)
    ]
    assert [(row["rival"], row["rate"]) for row in found["latency"]] == [("deltamirror", 500)]
    assert [(row["lag"], row["reread"], row["skipped"]) for row in found["failover"]] == [
        (0, 0, 0),
        (100, 0, 0),
    ]
    assert str(tmp_path) not in json.dumps([caught_up, found])
    assert pages.markdown({**caught_up, **found, "command": "this test"})
