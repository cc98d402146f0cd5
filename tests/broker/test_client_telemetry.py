"""Clients push the metrics that they are asked for, and these are shown among the broker's (KIP-714)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raylog.broker.client_telemetry import INSTANCES_MAX, KEPT_INTERVALS, ClientTelemetry
from raylog.broker.handlers.get_telemetry_subscriptions import NO_INSTANCE
from raylog.broker.telemetry_payload import (
    CLIENT_SERIES_MAX,
    CONTENT_BYTES_MAX,
    LABELS_MAX,
    TEXT_CHARACTERS_MAX,
    ClientSeries,
    read_payload,
)
from raylog.config.client_metrics import DEFAULT_INTERVAL_MS, MATCH_KEYS, SUBSCRIPTIONS_MAX
from raylog.config.metrics import RAYLOG_METRICS_ADDRESS, TELEMETRY_MAX_BYTES
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import id_text
from raylog.core.metrics import Kind
from raylog.protocol import registry
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from raylog.protocol.messages.push_telemetry import PushTelemetryRequest
from raylog.protocol.records.compression import Codec, compress
from tests.broker.otlp import gauge, payload, total
from tests.broker.test_metrics import of_broker
from tests.support.direct_broker import DirectBroker

CLIENT_METRICS = 16
DELETE, APPEND = 1, 2
RATE = "org.apache.kafka.producer.connection.creation.rate"


@pytest.fixture
def broker() -> DirectBroker:
    return DirectBroker({RAYLOG_METRICS_ADDRESS.name: "127.0.0.1:0", TELEMETRY_MAX_BYTES.name: 50_000})


def alter(broker: DirectBroker, name: str, *, operation: Any = 0, **values: Any) -> tuple[ErrorCode, str | None]:
    configs = tuple(
        AlterableConfig(name=key.replace("_", "."), config_operation=operation, value=value)
        for key, value in values.items()
    )
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    (answer,) = broker.call(IncrementalAlterConfigsRequest(resources=(resource,))).responses
    broker.settle()
    return answer.error_code, answer.error_message


def ask(broker: DirectBroker, instance_id: UUID = NO_INSTANCE) -> Any:
    return broker.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


def push(broker: DirectBroker, asked: Any, data: bytes = b"", **more: Any) -> ErrorCode:
    request = PushTelemetryRequest(
        **{
            "client_instance_id": asked.client_instance_id,
            "subscription_id": asked.subscription_id,
            "compression_type": 0,
            "metrics": data,
            **more,
        }
    )
    code: ErrorCode = broker.call(request).error_code
    return code


class TestSubscriptions:
    def test_they_are_listed_described_and_removed(self, broker: DirectBroker) -> None:
        assert alter(broker, "all", metrics="*", interval_ms="1000") == (0, None)
        listed = broker.call(ListConfigResourcesRequest(resource_types=(CLIENT_METRICS,))).config_resources
        assert [(each.resource_type, each.resource_name) for each in listed] == [(CLIENT_METRICS, "all")]
        listed = broker.call(ListConfigResourcesRequest(), version=0).config_resources
        assert [each.resource_name for each in listed] == ["all"]
        resource = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configuration_keys=None)
        (described,) = broker.call(DescribeConfigsRequest(resources=(resource,))).results
        assert {(each.name, each.value, each.read_only, each.config_source) for each in described.configs} == {
            ("metrics", "*", False, 7),
            ("interval.ms", "1000", False, 7),
            ("match", "", False, 5),
        }
        assert alter(broker, "all", operation=DELETE, metrics=None, interval_ms=None) == (0, None)
        assert broker.call(ListConfigResourcesRequest(resource_types=(CLIENT_METRICS,))).config_resources == ()

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            ({"interval_ms": "99"}, "interval.ms='99': must be between 100 and 3600000"),
            ({"interval_ms": "3600001"}, "must be between 100 and 3600000"),
            ({"match": "client_id"}, "'client_id' must be <key>=<regular expression>"),
            ({"match": "client_source_port=1"}, "with one of the keys client_instance_id, client_id,"),
            ({"match": "client_id=a,client_id=b"}, "client_id is contained twice"),
            ({"match": "client_id=("}, "missing )"),
            ({"match": "client_id=" + "(a{1000}){1000}"}, "is not a valid regular expression"),
            ({"match": "client_id=" + "a" * 501}, "must have at most 500 characters"),
            ({"metrics": "a" * 501}, "at most 100 items of at most 500 characters"),
            ({"metrics": ",".join(map(str, range(101)))}, "at most 100 items of at most 500 characters"),
            ({"no_such_key": "1"}, "no.such.key"),
        ],
    )
    def test_wrong_ones_are_refused(self, broker: DirectBroker, values: dict[str, str], told: str) -> None:
        code, message = alter(broker, "wrong", **values)
        assert code is ErrorCode.INVALID_CONFIG
        assert told in str(message)
        assert broker.broker.image.client_metrics == {}

    def test_null_is_refused(self, broker: DirectBroker) -> None:
        code, message = alter(broker, "wrong", metrics=None)
        assert (code, message) == (ErrorCode.INVALID_REQUEST, "metrics: must not be null")

    def test_the_default_resource_does_not_exist(self, broker: DirectBroker) -> None:
        assert alter(broker, "", metrics="*")[0] is ErrorCode.INVALID_REQUEST
        assert alter(broker, "x" * 501, metrics="*")[0] is ErrorCode.INVALID_REQUEST
        resource = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name="", configuration_keys=None)
        (described,) = broker.call(DescribeConfigsRequest(resources=(resource,))).results
        assert described.error_code is ErrorCode.INVALID_REQUEST

    def test_their_number_is_limited(self, broker: DirectBroker) -> None:
        for number in range(SUBSCRIPTIONS_MAX):
            assert alter(broker, f"s{number}", metrics="*") == (0, None)
        assert alter(broker, "more", metrics="*")[0] is ErrorCode.POLICY_VIOLATION
        assert alter(broker, "s0", metrics="a.") == (0, None)

    def test_they_survive_restarts(self, broker: DirectBroker) -> None:
        alter(broker, "all", metrics="*", match="client_id=a.*")
        broker.restart()
        broker.settle()
        assert broker.broker.image.client_metrics == {"all": {"metrics": "*", "match": "client_id=a.*"}}


class TestAsking:
    def test_without_subscriptions_a_client_is_asked_for_nothing(self, broker: DirectBroker) -> None:
        asked = ask(broker)
        assert (asked.error_code, asked.requested_metrics, asked.push_interval_ms) == (0, (), DEFAULT_INTERVAL_MS)
        assert asked.client_instance_id != NO_INSTANCE
        assert (asked.telemetry_max_bytes, asked.delta_temporality) == (50_000, False)
        assert asked.accepted_compression_types == (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)

    def test_matching_subscriptions_are_joined(self, broker: DirectBroker) -> None:
        broker.client_id = "billing-1"
        alter(broker, "a", metrics="b.,a.", interval_ms="5000", match="client_id=billing-.*")
        alter(broker, "b", metrics="c.", interval_ms="3000", match="client_source_address=127\\.0\\.0\\.1,client_id=.*")
        alter(broker, "c", metrics="d.", interval_ms="1000", match="client_id=billing")
        first = ask(broker)
        assert (first.requested_metrics, first.push_interval_ms) == (("a.", "b.", "c."), 3000)
        alter(broker, "d", metrics="*")
        second = ask(broker)
        assert second.requested_metrics == ("*",)
        assert second.subscription_id != first.subscription_id

    def test_a_client_may_ask_once_per_interval(self, broker: DirectBroker) -> None:
        alter(broker, "all", metrics="*", interval_ms="1000")
        instance_id = ask(broker).client_instance_id
        broker.pass_time(999)
        assert ask(broker, instance_id).error_code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        broker.pass_time(1)
        again = ask(broker, instance_id)
        assert (again.error_code, again.client_instance_id) == (0, instance_id)

    @pytest.mark.parametrize("shown", [True, False])
    def test_it_is_advertised_where_metrics_are_shown(self, broker: DirectBroker, *, shown: bool) -> None:
        if not shown:
            broker = DirectBroker()
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        keys = {each.api_key for each in broker.call(request).api_keys}
        wanted = {registry.GET_TELEMETRY_SUBSCRIPTIONS, registry.PUSH_TELEMETRY}
        assert keys & wanted == (wanted if shown else set())


class TestPushing:
    @pytest.fixture(autouse=True)
    def subscribed(self, broker: DirectBroker) -> None:
        alter(broker, "all", metrics="*", interval_ms="1000")

    @pytest.mark.parametrize("codec", Codec)
    def test_what_a_client_pushes_is_shown(self, broker: DirectBroker, codec: Codec) -> None:
        broker.client_id = "billing-1"
        asked = ask(broker)
        data = payload(gauge(RATE, 0.5), total("org.apache.kafka.x.total", 7, node=3), group_id="g")
        assert push(broker, asked, compress(codec, data), compression_type=codec) == 0
        shown = of_broker(broker)
        labels = {"client_id": "billing-1", "user": "ANONYMOUS", "group_id": "g"}
        found = [
            (name, value)
            for name, more in (("producer_connection_creation_rate", {}), ("x_total", {"node": "3"}))
            if (value := shown(f"kafka_client_{name}", client_instance_id=text_of(asked), **labels, **more))
        ]
        assert found == [("producer_connection_creation_rate", 0.5), ("x_total", 7)]

    def test_metrics_that_were_not_asked_for_are_left_out(self, broker: DirectBroker) -> None:
        alter(broker, "all", metrics="org.apache.kafka.producer.,own")
        assert push(broker, ask(broker), payload(gauge(RATE, 1), gauge("own.x", 2), gauge("other", 3))) == 0
        assert names_shown(broker) == {"producer_connection_creation_rate": 1, "own_x": 2}

    def test_a_client_that_was_asked_for_nothing_shows_nothing(self, broker: DirectBroker) -> None:
        alter(broker, "all", match="client_id=others")
        asked = ask(broker)
        assert asked.requested_metrics == ()
        assert push(broker, asked, payload(gauge("a", 1))) == 0
        assert names_shown(broker) == {}

    def test_a_push_replaces_the_one_before(self, broker: DirectBroker) -> None:
        asked = ask(broker)
        push(broker, asked, payload(gauge("a", 1), gauge("b", 2)))
        broker.pass_time(1000)
        assert push(broker, asked, payload(gauge("a", 3))) == 0
        assert names_shown(broker) == {"a": 3}

    def test_clients_that_push_no_more_are_forgotten(self, broker: DirectBroker) -> None:
        push(broker, ask(broker), payload(gauge("a", 1)))
        broker.pass_time(KEPT_INTERVALS * 1000 - 1)
        assert names_shown(broker) == {"a": 1}
        broker.pass_time(1)
        assert names_shown(broker) == {}
        assert len(broker.broker.telemetry) == 0

    def test_a_client_may_push_once_per_interval_and_once_when_it_ends(self, broker: DirectBroker) -> None:
        asked = ask(broker)
        assert push(broker, asked) == 0
        broker.pass_time(999)
        assert push(broker, asked) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert push(broker, asked, payload(gauge("last", 1)), terminating=True) == 0
        assert push(broker, asked, terminating=True) is ErrorCode.INVALID_REQUEST
        assert names_shown(broker) == {"last": 1}

    def test_a_changed_subscription_makes_the_client_ask_again(self, broker: DirectBroker) -> None:
        asked = ask(broker)
        alter(broker, "all", metrics="a.")
        assert push(broker, asked) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        again = ask(broker, asked.client_instance_id)
        assert (again.error_code, again.requested_metrics) == (0, ("a.",))
        assert push(broker, again) == 0

    @pytest.mark.parametrize(
        ("data", "more", "code"),
        [
            (b"\xff" * 100, {}, ErrorCode.INVALID_RECORD),
            (b"garbage", {"compression_type": Codec.ZSTD}, ErrorCode.INVALID_RECORD),
            (compress(Codec.GZIP, bytes(CONTENT_BYTES_MAX + 1)), {"compression_type": 1}, ErrorCode.INVALID_RECORD),
            (b"x" * 50_001, {}, ErrorCode.TELEMETRY_TOO_LARGE),
            (b"", {"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            (b"", {"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            (b"", {"client_instance_id": NO_INSTANCE}, ErrorCode.INVALID_REQUEST),
            (b"", {}, 0),
        ],
    )
    def test_pushes_that_are_refused(
        self, broker: DirectBroker, data: bytes, more: dict[str, Any], code: ErrorCode
    ) -> None:
        assert push(broker, ask(broker), data, **more) == code
        assert names_shown(broker) == {}

    def test_a_push_to_another_broker_than_was_asked_is_taken(self, broker: DirectBroker) -> None:
        asked = ask(broker)
        broker.restart()
        broker.settle()
        assert push(broker, asked, payload(gauge("a", 1))) == 0
        assert names_shown(broker) == {"a": 1}


def text_of(asked: Any) -> str:
    return id_text(asked.client_instance_id)


def names_shown(broker: DirectBroker) -> dict[str, float]:
    """The values of clients' metrics by name, if each has one series."""
    series = [each for _, found in broker.broker.telemetry.shown(broker.broker.now_ms) for each in found]
    assert len({each.name for each in series}) == len(series)
    return {each.name.removeprefix("kafka_client_"): each.value for each in series}


class TestPayloads:
    def test_names_cannot_be_those_of_the_broker(self) -> None:
        names = ["up", "kafka_server_x", "__name__", 'a"b\n{}', "", "org.apache.kafka.", "é.ü", "x" * 5000]
        found = read_payload(payload(*(gauge(name, 1) for name in names)), Codec.NONE)
        assert len(found) == len(names) - 1
        for each in found:
            assert each.name.startswith("kafka_client_")
            assert each.name.isascii()
            assert each.name.isidentifier()
            assert len(each.name) < TEXT_CHARACTERS_MAX + 20

    def test_labels_are_bounded_and_never_prometheus_own(self) -> None:
        labels = {"__name__": "up", **{f"label{number}": "v" * 5000 for number in range(100)}}
        (found,) = read_payload(payload(gauge("a", 1, **labels)), Codec.NONE)
        assert len(found.labels) == LABELS_MAX
        assert all(name.isidentifier() and not name.startswith("_") for name, _ in found.labels)
        assert max(len(value) for _, value in found.labels) == TEXT_CHARACTERS_MAX

    def test_kinds(self) -> None:
        metrics = total("a.total", 1), total("b", 2), total("c", 3, monotonic=False), gauge("d.total", 4)
        assert read_payload(payload(*metrics), Codec.NONE) == [
            ClientSeries("kafka_client_a_total", Kind.COUNTER, (), 1),
            ClientSeries("kafka_client_b_total", Kind.COUNTER, (), 2),
            ClientSeries("kafka_client_c", Kind.GAUGE, (), 3),
            ClientSeries("kafka_client_d", Kind.GAUGE, (), 4),
        ]

    def test_a_push_of_too_many_series_is_cut(self) -> None:
        many = [gauge(f"m{number}", number) for number in range(CLIENT_SERIES_MAX + 1)]
        assert len(read_payload(payload(*many), Codec.NONE)) == CLIENT_SERIES_MAX


class TestMemory:
    CLIENT = dict.fromkeys(MATCH_KEYS, "")

    def test_the_instance_heard_of_least_recently_makes_room(self) -> None:
        telemetry = ClientTelemetry(lambda: {"all": {"metrics": "*"}})
        for number in range(INSTANCES_MAX):
            telemetry.ask(UUID(int=number + 1), self.CLIENT, 0)
        with pytest.raises(KafkaError):
            telemetry.ask(UUID(int=1), self.CLIENT, 0)
        telemetry.ask(UUID(int=10**9), self.CLIENT, 0)
        assert len(telemetry) == INSTANCES_MAX
        telemetry.ask(UUID(int=2), self.CLIENT, 0)  # was forgotten
        with pytest.raises(KafkaError):
            telemetry.ask(UUID(int=1), self.CLIENT, 0)

    def test_the_series_of_all_clients_are_limited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("raylog.broker.client_telemetry.SERIES_MAX", 10)
        telemetry = ClientTelemetry(lambda: {"all": {"metrics": "*", "interval.ms": "100"}})
        series = [ClientSeries(f"kafka_client_{number}", Kind.GAUGE, (), 0) for number in range(6)]

        def push(number: int, now_ms: int) -> None:
            asked = telemetry.ask(UUID(int=number), self.CLIENT, now_ms)
            telemetry.begin_push(UUID(int=number), self.CLIENT, asked.subscription_id, terminating=False, now_ms=now_ms)
            telemetry.pushed(UUID(int=number), (), series)

        push(1, 0)
        push(2, 0)
        assert [len(kept) for _, kept in telemetry.shown(0)] == [6, 4]
        assert telemetry.dropped == 2
        push(1, 200)
        assert [len(kept) for _, kept in telemetry.shown(200)] == [4, 6]
        assert [len(kept) for _, kept in telemetry.shown(300)] == [6]
        push(3, 300)
        assert [len(kept) for _, kept in telemetry.shown(300)] == [6, 4]
