"""A mirror's metrics are those of its status, under MirrorMaker 2's names, in Prometheus' format."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from raylog.mirror.flow_status import CheckpointLatency, ControlStatus, FlowStatus
from raylog.mirror.metrics import ERROR_CHARACTERS_MAX, MIRROR_METRICS, scrape
from raylog.mirror.shard import PartitionStatus
from raylog.mirror.spread import Spread

AGES, LATENCIES = Spread(30, 20, 31, 25.5), Spread(40, 35, 60, 42.0)
RUNNING = PartitionStatus("t", 0, "A.t", 1, "running", 120, 7, 120, 9000, 4.0, 300.0, 500, AGES, LATENCIES, 2, None, 0)
BLOCKED = PartitionStatus(
    "t", 1, "A.t", 2, "blocked", None, None, 0, 0, 0.0, 0.0, None, None, None, 0, 'no "room"\n', 0
)
TASKS = (
    ControlStatus("topics", 3, 1_700_000_000_000, None, ()),
    ControlStatus("checkpoints", 1, None, "REQUEST_TIMED_OUT: target", ()),
)
FLOW = FlowStatus("A->B", (1, 2), (RUNNING, BLOCKED), ("shard 3: TRANSACTIONAL_ID_AUTHORIZATION_FAILED: x",), TASKS)
SOURCE = "kafka_connect_mirror_mirrorsourceconnector"
Found = dict[str, dict[tuple[str, ...], float]]


def found(*flows: FlowStatus) -> Found:
    """By metric, the value of the labels' values in the order of the table."""
    labels = {metric.name: metric.labels for metric in MIRROR_METRICS}
    samples: Found = {}
    for family in text_string_to_metric_families("".join(scrape(5, flows))):
        for sample in family.samples:
            name = sample.name.removesuffix("_total")  # which the parser adds
            key = tuple(sample.labels[label] for label in labels[name])
            values = samples.setdefault(name, {})
            assert key not in values
            values[key] = sample.value
    return samples


def test_what_is_known_of_a_partition_is_shown() -> None:
    shown = found(FLOW)
    at = ("A", "B", "A.t", "0", "5")
    values = {name: series[at] for name, series in shown.items() if at in series}
    assert values == {
        f"{SOURCE}_record_count": 120,
        f"{SOURCE}_record_rate": 4.0,
        f"{SOURCE}_byte_count": 9000,
        f"{SOURCE}_byte_rate": 300.0,
        f"{SOURCE}_record_age_ms": 30,
        f"{SOURCE}_record_age_ms_min": 20,
        f"{SOURCE}_record_age_ms_max": 31,
        f"{SOURCE}_record_age_ms_avg": 25.5,
        f"{SOURCE}_replication_latency_ms": 40,
        f"{SOURCE}_replication_latency_ms_min": 35,
        f"{SOURCE}_replication_latency_ms_max": 60,
        f"{SOURCE}_replication_latency_ms_avg": 42.0,
        "raylog_mirror_last_record_age_seconds": 0.5,
        "raylog_mirror_lag": 7,
        "raylog_mirror_lost_offsets": 2,
    }
    blocked = ("A", "B", "A.t", "1", "5")
    assert blocked not in shown["raylog_mirror_lag"]
    assert shown["raylog_mirror_partition_state"] == {(*at, "running"): 1, (*blocked, "blocked"): 1}


def test_the_latency_of_each_checkpoint_is_shown() -> None:
    shown = found(replace(FLOW, checkpoints=(CheckpointLatency("billing", "A.t", 0, Spread(4, 3, 9, 5.0)),)))
    name = "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    for suffix, value in (("", 4), ("_min", 3), ("_max", 9), ("_avg", 5.0)):
        assert shown[f"{name}{suffix}"] == {("A", "B", "billing", "A.t", "0"): value}


def test_errors_are_shown_until_they_are_gone() -> None:
    everywhere = ("A", "B", "", "", "5")
    assert found(FLOW)["raylog_mirror_error_info"] == {
        ("A", "B", "A.t", "1", "5", 'no "room"\n'): 1,
        (*everywhere, FLOW.errors[0]): 1,
        (*everywhere, "checkpoints: REQUEST_TIMED_OUT: target"): 1,
    }
    gone = replace(FLOW, partitions=(RUNNING, replace(BLOCKED, error=None)), errors=(), control=TASKS[:1])
    assert "raylog_mirror_error_info" not in found(gone)


def test_a_long_error_and_many_equal_ones_make_one_series() -> None:
    flow = replace(FLOW, partitions=(), errors=("x" * 10_000, "x" * 20_000), control=())
    (labels,) = found(flow)["raylog_mirror_error_info"]
    assert labels[-1] == "x" * ERROR_CHARACTERS_MAX


def test_tasks_and_shards_of_each_flow_are_shown() -> None:
    other = FlowStatus("B->A", (), (), ())
    assert found(FLOW, other)["raylog_mirror_task_last_success_timestamp_seconds"] == {("A", "B", "topics"): 1.7e9}
    assert found(FLOW, other)["raylog_mirror_shards"] == {("A", "B", "5"): 2, ("B", "A", "5"): 0}


def test_a_thousand_partitions_are_shown_in_pieces() -> None:
    many = tuple(replace(RUNNING, partition=number) for number in range(1_000))
    assert len(list(scrape(0, [replace(FLOW, partitions=many)]))) > 10
