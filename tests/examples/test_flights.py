"""The demonstration detects lost, duplicated and changed records, and its records match the table."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgpack
import pandas as pd
import pyarrow as pa
import pytest

from examples.flight_records import Flight, Mismatch, load_flights, to_records
from examples.flights import Delays, Read, check_delays, check_read, decode_delays, delays_of, table_of

TABLE = pd.DataFrame(
    {
        "dep_delay": [2.0, math.nan, 4.0],
        "arr_delay": [11.0, math.nan, -5.0],
        "carrier": ["UA", "AA", "UA"],
        "flight": [1545, 1, 2],
        "tailnum": ["N14228", None, "N24211"],
        "time_hour": ["2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z", "2013-12-31T04:00:00Z"],
    }
)


def test_a_record_contains_its_row() -> None:
    first, second, third = to_records(TABLE)
    assert (first.key, first.timestamp_ms, third.timestamp_ms) == (b"UA", 1_357_034_400_000, 1_388_462_400_000)
    assert msgpack.unpackb(first.value) == {
        "dep_delay": 2.0,
        "arr_delay": 11.0,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "time_hour": "2013-01-01T10:00:00Z",
    }
    assert [msgpack.unpackb(second.value)[name] for name in ("dep_delay", "arr_delay", "tailnum")] == [None] * 3


def test_spark_and_pandas_have_the_same_averages() -> None:
    values = pa.RecordBatch.from_pydict({"value": [flight.value for flight in to_records(TABLE)]})
    (decoded,) = decode_delays([values])
    assert decoded.to_pydict() == {
        "carrier": ["UA", "AA", "UA"],
        "dep_delay": [2.0, None, 4.0],
        "arr_delay": [11.0, None, -5.0],
    }
    delays = delays_of(TABLE)
    assert delays["UA"] == Delays(2, 3.0, 3.0)
    assert delays["AA"][0] == 1
    assert math.isnan(delays["AA"].mean_departure)
    check_delays(delays, delays_of(TABLE))
    assert table_of(delays).splitlines()[2].split() == ["UA", "2", "3.00", "min", "3.00", "min"]


@pytest.mark.parametrize(
    "found",
    [
        {"UA": Delays(2, 3.0, 3.0)},
        {"UA": Delays(2, 3.0, 3.0), "AA": Delays(2, math.nan, math.nan)},
        {"UA": Delays(2, 3.0, 3.000001), "AA": Delays(1, math.nan, math.nan)},
        {"UA": Delays(2, 3.0, 3.0), "AA": Delays(1, 0.0, math.nan)},
        {"UA": Delays(2, 3.0, 3.0), "AA": Delays(1, math.nan, math.nan), "XX": Delays(1, 1.0, 1.0)},
    ],
)
def test_different_averages_or_counts_are_reported(found: dict[str, Delays]) -> None:
    with pytest.raises(Mismatch, match=r"carrier (AA|UA|XX): Spark found"):
        check_delays(found, delays_of(TABLE))


@dataclass(frozen=True)
class Damage:
    flights: list[Flight]
    message: str


RECORDS = to_records(TABLE)


def read_of(flights: list[Flight]) -> Read:
    counts: dict[str, int] = {}
    for flight in flights:
        counts[flight.key.decode()] = counts.get(flight.key.decode(), 0) + 1
    size_bytes = sum(len(flight.key) + len(flight.value) for flight in flights)
    return Read(counts, size_bytes, sum(flight.timestamp_ms for flight in flights))


def test_a_complete_read_is_accepted() -> None:
    check_read(read_of(RECORDS[::-1]), RECORDS)


@pytest.mark.parametrize(
    "damage",
    [
        Damage(RECORDS[:2], "3 records were written, but 2 were read"),
        Damage([*RECORDS, RECORDS[0]], "3 records were written, but 4 were read"),
        Damage([*RECORDS[:2], RECORDS[2]._replace(key=b"AA")], "the records by carrier differ"),
        Damage([*RECORDS[:2], RECORDS[2]._replace(value=b"")], "bytes or timestamps differ"),
        Damage([*RECORDS[:2], RECORDS[2]._replace(timestamp_ms=0)], "bytes or timestamps differ"),
    ],
)
def test_a_lost_duplicated_or_changed_record_is_detected(damage: Damage) -> None:
    with pytest.raises(Mismatch, match=damage.message):
        check_read(read_of(damage.flights), RECORDS)


def test_the_row_count_is_that_of_the_readme() -> None:
    table = load_flights(None)
    assert len(table) == 336_776
    assert len(load_flights(7)) == 7
