import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import soak
from benchmarks.ground import ground


def test_the_picture_has_a_line_with_a_point_for_each_sample():
    samples = [soak.Sample(i, 100 * i, 100, 10 * i, 600, 200, 300, 100, 20.0, 9) for i in (1, 2, 3)]

    drawn = soak.picture({"every_s": 60.0, "samples": [asdict(sample) for sample in samples]})

    lines = ET.fromstring(drawn).findall(".//{http://www.w3.org/2000/svg}polyline")
    points = [[p.split(",") for p in line.attrib["points"].split()] for line in lines]
    assert [len(each) for each in points] == [3] * len(soak.SERIES)
    heights = [float(y) for _, y in points[0]]
    assert heights == sorted(heights, reverse=True), "files rise"


def test_a_sample_counts_files_log_entries_and_what_is_new(tmp_path):
    log = tmp_path / "records" / "_delta_log"
    log.mkdir(parents=True)
    (log / "0.json").touch()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        state = soak._State(tmp_path, process.pid)
        (log / "1.json").touch()
        (log.parent / "part-0.parquet").touch()
        sample = state.sample(1, 7)
        again = state.sample(2, 0)
        process.kill()

    assert (sample.files, sample.made, sample.log_entries, sample.records) == (3, 2, 2, 7)
    assert (again.files, again.made) == (3, 0)
    assert sample.memory_mib == sample.driver_mib > 0


@pytest.mark.kafka
@pytest.mark.story
def test_a_short_soak_mirrors_and_verifies_its_records():
    with tempfile.TemporaryDirectory(prefix="deltamirror-soak-") as home, ground(Path(home)) as on:
        samples = soak.measure(on, seconds=4, every_s=2, rate=500)

    assert [sample.minute for sample in samples] == [1, 2]
    assert all(sample.records > 500 and sample.cpu_s > 0 for sample in samples)
    assert samples[-1].files > samples[-1].log_entries > 0
    assert samples[0].jvm_mib > 0
    assert samples[0].workers_mib > 0
