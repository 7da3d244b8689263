import json
import os
import subprocess
import time

import pytest
from deltalake import DeltaTable

from benchmarks import commits, report
from benchmarks.__main__ import run
from benchmarks.meter import Cost, Meter, PeakMemory, tree

COST = Cost(records=2_000_000, seconds=4.0, cpu_s=5.0, broker_cpu_s=1.0)


def result():
    return {
        "date": "2026-01-02",
        "commit": "abc+",
        "machine": {"cores": 2, "cpu": "a CPU", "memory_gib": 8},
        "partitions": 4,
        "rounds": 1,
        "throughput": [report.throughput(measure, 100, [COST]) for measure in report.WORDS],
        "delay_s": {**report.spread([0.5, 0.7], 3), "ticks": 2, "new_records": 2000},
        "memory": [{"records": 10, "size_bytes": 1024, "peak_mib": 700}],
    }


@pytest.mark.parametrize(
    ("file", "mark"),
    [
        ("benchmarks/results/mm2-2026-01-02.json", ""),
        ("benchmarks/README.md", ""),
        ("README.md", ""),
        ("benchmarks/mm2/settings/common.properties", "+"),
        ("pipeline/replay/slot_replay.py", "+"),
    ],
)
def test_a_commit_has_a_plus_if_the_product_was_changed_but_not_for_new_results(
    tmp_path, monkeypatch, file, mark
):
    monkeypatch.setattr(report, "ROOT", tmp_path)
    git(tmp_path, "init", "-q")
    write(tmp_path / "schemas" / "flow.py", "a flow")
    write(tmp_path / file, "before")
    git(tmp_path, "commit", "-qm", "first")
    before = report.commit()

    (tmp_path / file).write_text("after")

    assert report.commit() == before + mark


def test_the_commit_is_the_last_one_that_changed_the_product(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "ROOT", tmp_path)
    git(tmp_path, "init", "-q")
    commits = []
    for file in (
        "pipeline/replay/slot_replay.py",
        "README.md",
        "benchmarks/results/bench.json",
        "schemas/a.py",
    ):
        write(tmp_path / file, "new")
        git(tmp_path, "commit", "-qm", file)
        commits.append(report.commit())

    assert commits[0] == commits[1] == commits[2] != commits[3]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    git(path.parent, "add", path.name)


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True)


def test_costs_are_per_million_records():
    assert COST.records_per_s == 500_000
    assert COST.cpu_s_per_million == 2.5
    assert COST.broker_cpu_s_per_million == 0.5


def test_a_meter_counts_the_cpu_of_this_process():
    meter = Meter([])
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass

    assert meter.stop(1).cpu_s >= 0.15


def test_memory_is_that_of_the_process_and_its_children():
    memory = PeakMemory(os.getpid())
    with memory.watch():
        until = time.monotonic() + 30
        while not memory.peak_bytes and time.monotonic() < until:
            time.sleep(0.01)

    assert memory.peak_bytes > 2**20
    assert os.getpid() in tree(os.getppid())


def test_numbers_are_written_between_the_markers_and_the_rest_of_the_page_is_kept(tmp_path):
    page, plain = tmp_path / "page.md", tmp_path / "plain.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    plain.write_text("no marks\n")

    assert report.fill_pages(result(), [page, plain]) == [page]

    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old" not in lines
    assert "| stage | 500,000 | 2.50 |" in lines
    assert plain.read_text() == "no marks\n"


@pytest.mark.kafka
@pytest.mark.story
# PySpark leaves the sockets that it hands data to the JVM through to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_run_measures_everything_and_prints_no_path(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.__main__.TICKS", 1)

    found = run(tmp_path, sizes=[100], records=2000, rounds=1)

    assert [row["measure"] for row in found["throughput"]] == list(report.WORDS)
    assert all(row["records"] == 2000 for row in found["throughput"])
    assert all(row["records_per_s"]["median"] > 0 for row in found["throughput"])
    assert 0 < found["delay_s"]["median"] < 60
    assert [row["records"] for row in found["memory"]] == [500, 2000]
    assert all(row["peak_mib"] > 100 for row in found["memory"])
    assert str(tmp_path) not in json.dumps(found)
    assert report.save(found, tmp_path / "results").exists()
    assert report.markdown(found)
    assert report.table(found).row_count == len(report.WORDS)


def test_commits_of_both_libraries_are_measured_at_each_length_of_the_log(tmp_path):
    costs = commits.measure(tmp_path, [3, 70])

    assert [(cost.commits, cost.by) for cost in costs] == [
        (3, "deltamirror"),
        (3, "deltalake"),
        (70, "deltamirror"),
        (70, "deltalake"),
    ]
    assert all(cost.commit_ms > 0 for cost in costs)
    assert DeltaTable(str(tmp_path / "records")).version() == 70 + 2 * commits.TIMES
