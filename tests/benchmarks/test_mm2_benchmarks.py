import contextlib
import json
import time
from functools import partial

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, ConfigResource

from benchmarks import report
from benchmarks.ground import Ground, ground, make_topic
from benchmarks.meter import Cost
from benchmarks.mm2 import __main__ as comparison
from benchmarks.mm2 import (
    catch_up,
    growth,
    pages,
    results,
    rivals,
    staged,
    summary,
    ticks,
)
from benchmarks.mm2.catch_up import Backlog, CatchUp
from benchmarks.mm2.cost import Spent
from benchmarks.mm2.growth import Growth
from benchmarks.mm2.loads import Flights, Load
from benchmarks.mm2.parts import Stream
from benchmarks.mm2.precision import Precision
from benchmarks.mm2.remote import Topic
from benchmarks.mm2.topics import Topics
from benchmarks.sampler import Sampler
from benchmarks.threads import Threads
from demo.kafka.brokers import Broker
from pipeline.record_stats import timestamp_stats
from resources.config.load import read_config
from tests.support.brokers import Record, create_topic, produce

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


def whole():
    """A full comparison: 20 in every column of deltamirror, 2, 3, 4 of others; ratios 10, 9, 8."""
    sizes = [{**CASE, "size_bytes": size} for size in (100, 1_024)]
    others = ("mm2-stock", "mm2-tuned", "mm2-exactly-once")
    medians = {
        name: {"median": value}
        for name, value in zip(("deltamirror", *others), (20, 2, 3, 4), strict=True)
    }
    speeds = ("records_per_s", "cpu_s_per_million", "peak_mib")
    delays = ("p50_ms", "p99_ms")

    def ratios(cases, measures):
        return [
            {**case, "measure": measure, "to": name, "median": median}
            for case in cases
            for measure in measures
            for name, median in zip(others, (10, 9, 8), strict=True)
        ]

    def rows(cases, columns):
        return [
            {**case, "rival": name, **dict.fromkeys(columns, median)}
            for case in cases
            for name, median in medians.items()
        ]

    streams = [{"rate": 10_000}, {"rate": 50_000}]
    return {
        **result(),
        "catch_up": rows([*sizes, {**CASE, "compression": "lz4"}], speeds),
        "catch_up_ratios": ratios(sizes, ("records_per_s", "last_s", "cpu_s", "peak_bytes")),
        "latency": rows(streams, delays),
        "latency_ratios": ratios(streams, ("p50", "p99", "cpu_s")),
        "failover": [
            results.precision_row("mm2-stock", Precision(5_000, 1_234, 0, 0)),
            results.precision_row("deltamirror", Precision(5_000, 0, 0, 0)),
        ],
    }


class NoTopic:
    """A source topic of which only the ends are requested."""

    name = "orders"

    def delete(self):
        pass


@pytest.fixture
def on(tmp_path):
    """A ground whose brokers never start, because no request is sent to them."""
    return Ground(tmp_path, Broker("s", tmp_path / "s"), Broker("t", tmp_path / "t"))


def test_a_rate_counts_neither_the_start_nor_the_records_of_the_first_poll():
    assert run(first_s=10.0, last_s=20.0, before=40).records_per_s == 6.0


def test_a_ratio_compares_the_same_round():
    speeds = {"mm2-stock": [10.0, 20.0, 40.0], "deltamirror": [20.0, 60.0, 40.0]}

    (row,) = results.ratios({}, "records_per_s", speeds)

    assert (row["to"], row["median"], row["low"], row["high"]) == ("mm2-stock", 2.0, 1.0, 3.0)


def test_results_of_parts_that_were_run_separately_are_joined():
    former = {**result(), "cost": [1], "failover": [2]}
    latter = {**result(), "failover": [3], "seconds": 5, "command": "again"}

    both = results.joined(former, latter)

    assert (both["cost"], both["failover"]) == ([1], [3])
    assert both["seconds"] == 130
    assert both["command"] == "python -m benchmarks.mm2; again"


def test_a_load_that_was_run_alone_replaces_only_its_own_rows():
    flights = {"rival": "deltamirror", "data": "flights", "partitions": 4, "compression": "none"}
    former = {**result(), "catch_up": [{**CASE, "rival": "mm2-stock", "cpu": 1}, flights]}
    latter = {**result(), "catch_up": [{**CASE, "rival": "mm2-stock", "cpu": 2}]}

    assert results.joined(former, latter)["catch_up"] == [flights, *latter["catch_up"]]


def test_results_are_kept_if_a_later_load_fails(tmp_path, monkeypatch):
    def loads(*_):
        yield {"catch_up": ["a load"], "catch_up_ratios": ["its ratio"]}
        raise TimeoutError("the next one")

    monkeypatch.setitem(comparison.FULL_PARTS, "catch-up", loads)
    monkeypatch.setattr(comparison, "ground", lambda home: contextlib.nullcontext())
    monkeypatch.setattr(report, "save", partial(report.save, folder=tmp_path))

    failed = CliRunner().invoke(comparison.main, [])

    assert str(failed.exception) == "the next one"
    assert report.newest("mm2", tmp_path)["catch_up"] == ["a load"]


@pytest.mark.parametrize(
    "options", [["--load", "100-4-none"], ["--part", "catch-up", "--part", "catch-up"]]
)
def test_a_chosen_load_is_measured_without_other_parts_and_each_part_once(
    tmp_path, monkeypatch, options
):
    rows = {"catch_up": ["a row"], "catch_up_ratios": ["its ratio"]}
    monkeypatch.setitem(comparison.FULL_PARTS, "catch-up", lambda *_: [rows])
    monkeypatch.setattr(comparison, "ground", lambda home: contextlib.nullcontext())
    monkeypatch.setattr(report, "newest", lambda name: None)
    monkeypatch.setattr(report, "save", partial(report.save, folder=tmp_path))
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "markdown", str)

    done = CliRunner().invoke(comparison.main, options, catch_exceptions=False)

    assert done.exit_code == 0
    (kept,) = (json.loads(file.read_text()) for file in tmp_path.glob("*.json"))
    assert {kind: kept.get(kind) for kind in (*rows, "latency", "failover")} == {
        **rows,
        "latency": None,
        "failover": None,
    }


def test_a_result_has_the_commit_at_the_start_of_its_run(tmp_path, monkeypatch):
    commits = iter(["that of the beginning"])
    monkeypatch.setattr(report, "commit", lambda: next(commits))
    monkeypatch.setattr(comparison, "ground", lambda home: contextlib.nullcontext())
    monkeypatch.setitem(comparison.FULL_PARTS, "catch-up", lambda *_: [{"a": [1]}, {"a": [2]}])

    steps = list(comparison.run(tmp_path, comparison.FULL, ["catch-up"]))

    assert [step["a"] for step in steps] == [[1], [1, 2]]
    assert {step["commit"] for step in steps} == {"that of the beginning"}


def test_an_unknown_load_is_refused_with_the_known_loads():
    answer = CliRunner().invoke(comparison.main, ["--load", "7-4-none"])

    assert answer.exit_code == 2
    assert "--load 7-4-none: there are 100-4-none, 1024-4-none" in answer.output


@pytest.mark.kafka
@pytest.mark.story
def test_brokers_keep_records_of_2013(tmp_path):
    with ground(tmp_path) as on:
        for broker in (on.source, on.target):
            make_topic(broker, "flights")
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            flights = ConfigResource(ConfigResource.Type.TOPIC, "flights")
            configs = admin.describe_configs([flights])[flights].result(30)
            assert configs["retention.ms"].value == "-1"


@pytest.mark.kafka
@pytest.mark.story
def test_records_are_written_in_order_if_leaders_are_not_ready_yet(tmp_path):
    partitions = 400  # the broker lists all leaders long before the last one accepts records
    with ground(tmp_path) as on:
        on.fill("slow", 40_000, 100, partitions=partitions)
        ends = Topics(on.source, ["slow"], partitions).ends()
        numbers = {topic_partition: [] for topic_partition in ends}
        for message in Topics(on.source, ["slow"], partitions).read(dict.fromkeys(ends, 0), ends):
            numbers[message.topic(), message.partition()].append(int(message.key()))

    assert numbers == {(name, p): [*range(p, 40_000, partitions)] for name, p in ends}


@pytest.mark.parametrize("other", [{"commit": "def"}, {"rounds": 2}, {"machine": {"cores": 4}}])
def test_parts_of_another_commit_machine_or_number_of_rounds_are_not_joined(other):
    former = {**result(), "cost": [1], **other}

    assert "cost" not in results.joined(former, result())


def test_parts_are_not_joined_if_the_product_differs_from_its_commit():
    latter = {**result(), "commit": "abc+"}

    assert "cost" not in results.joined({**latter, "cost": [1]}, latter)
    assert results.joined(None, latter) == latter


def test_the_newest_result_of_a_command_is_found_by_its_day(tmp_path):
    for day in ("2026-01-09", "2026-01-10"):
        report.save({"date": day}, tmp_path, name="mm2")
    report.save({"date": "2026-02-01"}, tmp_path, name="mm2-full")

    assert report.newest("mm2", tmp_path) == {"date": "2026-01-10"}
    assert report.newest("bench", tmp_path) is None


def test_the_page_shows_medians_ratios_commit_and_machine():
    page = pages.markdown(result())

    assert "| 100 of 100 B, 4 partitions | deltamirror | 20 (20 - 20) | 10 (10 - 10) |" in page
    assert "| 100 of 100 B, 4 partitions | MirrorMaker 2, stock | 2 (2 - 2) |" in page
    assert "| 72,000 | deltamirror | 0 | 0 | 0 |" in page
    assert "`python -m benchmarks.mm2` on 2026-01-02, commit abc, in 2 minutes: 2 cores" in page


def test_the_page_shows_the_number_of_joined_parts():
    command = "python -m benchmarks.mm2 --full --part"
    made = {**result(), "command": f"{command} catch-up --load flights; {command} cost"}

    assert "`python -m benchmarks.mm2 --full` in 2 parts on 2026-01-02" in pages.markdown(made)


def test_the_page_shows_growth_and_the_cost_of_a_record():
    spread = {"median": 0.2, "low": 0.1, "high": 0.3}
    idle = {"rival": "deltamirror", "topics": 1_000, "all_s": 12.5, "idle_stage_tick_s": spread}
    mm2 = {"rival": "mm2-exactly-once", "topics": 1_000, "all_s": 20.0}
    spent = Spent("stage", 1_000_000, 2.0, {"pipeline/record_digest.py": 1.5, "tiny": 0.001})
    cost = results.cost_rows("deltamirror", 100, spent)

    page = pages.markdown({**result(), "growth_topics": [mm2, idle], "cost": cost})

    assert "| 1,000 topics | MirrorMaker 2, tuned, exactly once | 20 |" in page
    assert "| 0.2 (0.1 - 0.3) |" in page
    assert "| deltamirror, stage |  | all threads | 2 |" in page
    assert "| `pipeline/record_digest.py` | Digest of records that does not depend on" in page
    assert "tiny" not in page


def test_tables_are_written_between_the_markers_and_the_rest_of_the_page_is_kept(tmp_path):
    page = tmp_path / "page.md"
    short, full = pages.marks("mm2"), pages.marks("mm2-full")
    page.write_text("\n".join(["before", short[0], "short", short[1], full[0], "full", full[1]]))

    pages.fill("tables", "mm2-full", page)

    lines = page.read_text().splitlines()
    assert lines[:5] == ["before", short[0], "short", short[1], full[0]]
    assert lines[5:] == ["tables", full[1]]


@pytest.mark.parametrize(
    ("name", "page"),
    [("mm2", pages.PAGE), ("mm2-full", pages.PAGE), (summary.NAME, summary.PAGE)],
)
def test_pages_have_the_markers_of_their_tables(name, page):
    assert all(mark in page.read_text() for mark in pages.marks(name))


def test_the_readme_shows_each_rivals_number_and_the_ratio_to_it():
    lines = summary.markdown(whole()).splitlines()

    assert "| records/s, 100 B | 20 | 2 (10) | 3 (9) | 4 (8) |" in lines
    assert "| delay at 10,000 records/s, p99, ms | 20 | 2 (10) | 3 (9) | 4 (8) |" in lines
    assert lines[-3].endswith("reads again on the target | 0 | 1,234 |  |  |")


def test_the_readme_is_not_changed_until_every_part_it_shows_was_measured():
    assert summary.is_whole(whole())
    assert not summary.is_whole({**whole(), "latency": []})
    assert not summary.is_whole(result())


def test_a_page_without_markers_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no marks\n")

    with pytest.raises(ValueError, match="has no <!-- mm2 -->"):
        pages.fill("tables", "mm2", page)


@pytest.mark.parametrize("rival", rivals.RIVALS, ids=lambda rival: rival.name)
def test_deltamirror_reads_each_rivals_file_too(on, rival):
    flow = rivals.flow(on, rival, "round0", "orders", more="{source}->target.tasks.max = 3\n")

    (found,) = read_config(flow.file).flows

    assert str(found.flow) == "round0->target"
    assert found.remote_topic("orders") == flow.remote("orders")


@pytest.mark.kafka
def test_the_last_record_of_each_partition_is_found_before_its_transaction_markers(
    source, unique_topic
):
    create_topic(source.bootstrap_servers, unique_topic, 3)
    sent = [Record(b"%d" % n, b"v%d" % n, partition=n % 2) for n in range(5)]
    produce(source.bootstrap_servers, unique_topic, sent, transactional_id=unique_topic)
    topic = Topic(source, unique_topic, 3)

    assert topic.lasts({**topic.ends(), 1: 1}) == {0: (b"4", b"v4"), 1: (b"1", b"v1"), 2: None}


@pytest.mark.kafka
@pytest.mark.story
@pytest.mark.timeout(600)  # five rivals start, one after the other
def test_a_small_comparison_measures_everything_and_prints_no_path(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "LAGS", (0, 100))
    monkeypatch.setattr("benchmarks.mm2.parts.FAILING_OVER", (rivals.OURS,))
    load = Load(100, 4_000)
    plan = comparison.Plan((load,), (Stream(500, warm_s=1.0, for_s=2.0),), load, rounds=1)

    monkeypatch.setattr("benchmarks.mm2.parts.RIVALS", (rivals.EXACTLY_ONCE, rivals.OURS))
    (caught_up,) = comparison.run(tmp_path / "both", plan, ["catch-up"])
    monkeypatch.setattr("benchmarks.mm2.parts.RIVALS", (rivals.OURS,))
    _, found = comparison.run(tmp_path / "ours", plan, ["latency", "failover"])

    assert [row["records"] for row in caught_up["catch_up"]] == [4_000, 4_000]
    assert all(row["peak_mib"]["median"] > 100 for row in caught_up["catch_up"])
    assert [(row["rival"], row["rate"]) for row in found["latency"]] == [("deltamirror", 500)]
    assert [(row["lag"], row["reread"], row["skipped"]) for row in found["failover"]] == [
        (0, 0, 0),
        (100, 0, 0),
    ]
    assert str(tmp_path) not in json.dumps([caught_up, found])
    assert pages.markdown({**caught_up, **found, "command": "this test"})


def test_growth_and_cost_are_parts_of_the_full_comparison_only():
    answer = CliRunner().invoke(comparison.main, ["--part", "growth"])

    assert answer.exit_code == 2
    assert "--part growth is a part of --full only" in answer.output
    assert not {"growth", "cost"} & set(comparison.PARTS)


def test_cpu_time_counts_for_the_innermost_file_of_the_product():
    stamps, until = pa.array(range(100_000)), time.process_time() + 0.5

    with Sampler() as sampler:
        while time.process_time() < until:
            timestamp_stats(stamps)

    assert max(sampler.files, key=sampler.files.__getitem__) == "pipeline/record_stats.py"


def test_threads_are_grouped_by_the_prefix_of_their_names():
    before = Threads({1: ("rdk:main", 1.0), 2: ("python", 5.0)})
    after = Threads({1: ("rdk:main", 1.5), 2: ("python", 9.0), 3: ("rdk:broker1", 2.0)})

    found = after.since(before, lambda name: name[:3], but=[2])

    assert found == {"rdk": 2.5}


def test_each_step_of_cores_sets_tasks_max(on, monkeypatch):
    seen = []

    def run_of(on, flow, backlog):
        seen.append(read_config(flow.file).tasks_max)
        return run(last_s=20.0)

    monkeypatch.setattr(catch_up, "backlog", lambda *_: Backlog(NoTopic(), {}, {}))
    monkeypatch.setattr(catch_up, "measure", run_of)
    monkeypatch.setattr(Load, "fill", lambda self, on: None)

    rows = growth.cores(on, Growth(tasks=(1, 2), loads=(Load(100, 100),)), rounds=2, say=str)

    assert seen == [1, 2, 2, 1]
    assert [row["tasks"] for row in rows] == [1, 2]


@pytest.mark.kafka
@pytest.mark.story
def test_growth_and_cost_are_measured_and_all_records_arrive(tmp_path, monkeypatch):
    monkeypatch.setattr(ticks, "TIMES", 2)
    monkeypatch.setattr(staged, "RESTS_S", 0.0)
    monkeypatch.setattr(growth, "WITH_TOPICS", (rivals.OURS,))
    monkeypatch.setattr("benchmarks.mm2.parts.RIVALS", (rivals.OURS,))
    load = Load(100, 4_000)
    verified = []
    monkeypatch.setattr(catch_up, "verify", lambda flow, *_: verified.append(flow.alias))
    small = Growth((3,), (2_000,), (), (), warm_s=0.5, idle_s=1.0)
    plan = comparison.Plan((), (), load, 1, small, (load,))

    _, found = comparison.run(tmp_path, plan, ["growth", "cost"])

    (idle,), (grown,) = found["growth_topics"], found["growth_staged"]
    assert verified == ["deltamirror-idle-3", "grows", "deltamirror-cost-100"]
    assert (idle["topics"], grown["records"]) == (3, 2_000)
    assert 0 < grown["log_mib"] < grown["lake_mib"]
    assert all(
        row[tick]["low"] > 0 for row in (idle, grown) for tick in ("stage_tick_s", "replay_tick_s")
    )
    steps = {row["step"] for row in found["cost"] if row["cpu_s_per_million"] > 0}
    assert steps == {"bare consume loop", "stage", "replay"}
    assert "librdkafka's threads" in {row["where"] for row in found["cost"]}
    assert str(tmp_path) not in json.dumps(found)
    assert pages.markdown({**found, "command": "this test"})


@pytest.mark.kafka
@pytest.mark.story  # the whole table is parsed
def test_flights_are_written_as_in_the_demo(tmp_path, clusters):
    on = Ground(tmp_path, *clusters)
    load = Flights(records=500)

    load.fill(on)

    backlog = catch_up.backlog(on, load.topic, load.partitions)
    assert backlog.records == 500
    (key, value), *_ = [last for last in backlog.last.values() if last is not None]
    assert json.loads(value)["carrier"] == key.decode()
    backlog.topic.delete()
