"""The options of a read are those of Spark's Kafka source; wrong and contradictory ones are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition
from raylog.core.password import Password
from raylog.protocol.records.arrow import COLUMNS
from raylog.raydp_bridge.partition_offsets import EARLIEST, LATEST
from raylog.raydp_bridge.read_options import NAMES, Limits, Position, ReadOptions, Subscription

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(*, streaming: bool = False, **options: Any) -> ReadOptions:
    given: dict[str, Any] = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
    given |= {name.replace("__", "."): value for name, value in options.items()}
    return ReadOptions.parse({name: value for name, value in given.items() if value is not None}, streaming=streaming)


def test_the_defaults_are_those_of_sparks_source_except_for_the_isolation_level() -> None:
    batch, stream = parse(), parse(streaming=True)
    assert (batch.starting, batch.ending) == (Position("startingOffsets", EARLIEST), Position("endingOffsets", LATEST))
    assert stream.starting == Position("startingOffsets", LATEST)
    for options in (batch, stream):
        assert options.subscription == Subscription(topics=("t",))
        assert options.properties == {"bootstrap.servers": "b:9092"}
        assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
        assert options.fail_on_data_loss
        assert options.limits == Limits(None, None, 900_000)
        assert (options.min_partitions, options.skip_malformed, options.warnings) == (None, False, ())


def test_every_option_is_parsed() -> None:
    options = ReadOptions.parse(
        {
            "KAFKA.bootstrap.servers": "b:9092",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.sasl.jaas.config": "secret",
            "SUBSCRIBE": " a , b,,a",
            "startingoffsets": '{"a":{"0":-2},"b":{"0":7}}',
            "failOnDataLoss": "FALSE",
            "minPartitions": "12",
            "maxOffsetsPerTrigger": 100,
            "minOffsetsPerTrigger": "7",
            "maxTriggerDelay": "30s",
            "columns": "value, offset",
            "skipMalformed": True,
        },
        streaming=True,
    )
    assert options.subscription == Subscription(topics=("a", "b"))
    starts = {TopicPartition("a", 0): -2, TopicPartition("b", 0): 7}
    assert options.starting == Position("startingOffsets", starts)
    assert options.properties == {
        "bootstrap.servers": "b:9092",
        "isolation.level": "read_uncommitted",
        "sasl.jaas.config": Password("secret"),
    }
    assert "secret" not in repr(options)
    assert (options.columns, options.fail_on_data_loss, options.min_partitions) == (("value", "offset"), False, 12)
    assert (options.limits, options.skip_malformed) == (Limits(100, 7, 30_000), True)


@pytest.mark.parametrize(
    ("options", "starting"),
    [
        ({"startingOffsets": "Earliest"}, Position("startingOffsets", EARLIEST)),
        (
            {"startingOffsets": '{"t":{"0":4}}', "startingOffsetsByTimestamp": '{"t":{"0":5}}'},
            Position("startingOffsetsByTimestamp", {T0: 5}, by_time=True),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingTimestamp": "6"},
            Position("startingTimestamp", 6, by_time=True),
        ),
        (
            {"startingTimestamp": "6", "startingOffsetsByTimestampStrategy": "Latest"},
            Position("startingTimestamp", 6, by_time=True, or_latest=True),
        ),
    ],
)
def test_a_timestamp_precedes_timestamps_of_partitions_and_both_precede_offsets(
    options: dict[str, Any], starting: Position
) -> None:
    assert parse(**options).starting == starting


def test_an_end_by_timestamp_is_the_latest_offset_where_no_later_record_is() -> None:
    assert parse(endingTimestamp="9").ending == Position("endingTimestamp", 9, by_time=True, or_latest=True)
    assert parse(endingOffsetsByTimestamp='{"t":{"0":5}}').ending.or_latest


def test_headers_are_read_if_they_are_asked_for() -> None:
    assert parse(includeHeaders="true").columns == tuple(COLUMNS)
    assert parse(includeHeaders="true", columns="headers,key").columns == ("headers", "key")
    assert parse(columns="headers").columns == ("headers",)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("2 min", 120_000), ("30S", 30_000), ("500ms", 500), ("70", 70), ("1h", 3_600_000), ("7us", 0)],
)
def test_a_delay_is_written_as_in_spark(text: str, ms: int) -> None:
    assert parse(streaming=True, maxTriggerDelay=text).limits.max_delay_ms == ms


REFUSED_ALWAYS: list[tuple[dict[str, Any], str]] = [
    ({"subscribe": None}, "one of the options subscribe, subscribePattern, assign must be specified"),
    ({"assign": '{"t":[0]}'}, "only one of the options subscribe, subscribePattern, assign must be specified"),
    ({"subscribePattern": "t.*"}, "only one of the options subscribe, subscribePattern, assign"),
    ({"subscribe": " , "}, "no topics to subscribe to"),
    ({"subscribe": ""}, "no topics to subscribe to"),
    ({"subscribe": None, "subscribePattern": " "}, "subscribePattern: the pattern is empty"),
    ({"subscribe": None, "subscribePattern": "*"}, "is not a regular expression"),
    ({"subscribe": None, "subscribePattern": "(" * 10_000}, "is not a regular expression"),
    ({"subscribe": None, "assign": "t"}, "assign='t': must be JSON such as"),
    ({"kafka__bootstrap__servers": None}, "kafka.bootstrap.servers: must be specified"),
    ({"kafka__bootstrap__servers": ""}, "kafka.bootstrap.servers: must be specified"),
    ({"kafka__group__id": "g"}, "'group.id' is not supported"),
    ({"kafka__auto__offset__reset": "latest"}, "'auto.offset.reset' is not supported: set the source option starting"),
    ({"kafka__key__deserializer": "x"}, "'key.deserializer' is not supported"),
    ({"kafka__value__deserializer": "x"}, "'value.deserializer' is not supported"),
    ({"kafka__enable__auto__commit": "true"}, "'enable.auto.commit' is not supported"),
    ({"kafka__interceptor__classes": "x"}, "'interceptor.classes' is not supported"),
    ({"kafka__fetch__max__bytes": "x"}, "fetch.max.bytes='x': "),
    ({"kafka__request__timeout__ms": "abc"}, "request.timeout.ms='abc': "),
    ({"kafka__isolation__level": "read_comitted"}, "isolation.level='read_comitted': must be one of"),
    ({"maxOffsetPerTrigger": "5"}, "'maxOffsetPerTrigger': is not an option of this source; it has subscribe, "),
    ({"SUBSCRIBE": "t"}, "'SUBSCRIBE': is given twice; names are case-insensitive"),
    ({"startingOffsets": ""}, "startingOffsets='': must be JSON such as"),
    ({"startingOffsetsByTimestampStrategy": ""}, "startingOffsetsByTimestampStrategy='': must be error or latest"),
    ({"startingOffsets": "beginning"}, "startingOffsets='beginning': must be JSON such as"),
    ({"startingTimestamp": "soon"}, "startingTimestamp='soon': must be an integer between 0 and"),
    ({"startingTimestamp": "9" * 30}, "must be an integer between 0 and"),
    ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "t-0: -1 must be an integer between 0 and"),
    ({"startingOffsetsByTimestampStrategy": "earliest"}, "must be error or latest"),
    ({"failOnDataLoss": "no"}, "failOnDataLoss='no': must be true or false"),
    ({"includeHeaders": "1"}, "includeHeaders='1': must be true or false"),
    ({"skipMalformed": ""}, "skipMalformed='': must be true or false"),
    ({"minPartitions": "0"}, "minPartitions='0': must be an integer between 1 and"),
    ({"minPartitions": "-1"}, "minPartitions='-1': must be an integer between 1 and"),
    ({"minPartitions": "1e3"}, "minPartitions='1e3': must be an integer between 1 and"),
    ({"minPartitions": "100001"}, "minPartitions=100001: must be an integer between 1 and 100000"),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0': must be an integer between 1 and"),
    ({"minOffsetsPerTrigger": "x" * 10_000}, "minOffsetsPerTrigger='xxx"),
    (
        {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"},
        "minOffsetsPerTrigger=11: is higher than maxOffsetsPerTrigger=10",
    ),
    ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon': must be a time such as 15m"),
    ({"maxTriggerDelay": "-5s"}, "maxTriggerDelay='-5s': must be a time such as 15m"),
    ({"columns": "value,length"}, "length"),
    ({"columns": ""}, "columns"),
    ({"columns": "value,value"}, "value"),
    ({"columns": "value", "includeHeaders": "true"}, "includeHeaders=true: contradicts columns='value'"),
    ({"columns": "headers", "includeHeaders": "false"}, "includeHeaders=false: contradicts columns='headers'"),
    ({"minPartitions": ["3"]}, "'minPartitions': must be a text, a number or a boolean"),
]
REFUSED_IN_BATCHES: list[tuple[dict[str, Any], str]] = [
    ({"startingOffsets": "latest"}, "startingOffsets: a starting offset cannot be latest in batch queries"),
    ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets: a starting offset cannot be latest in batch queries"),
    ({"endingOffsets": ""}, "endingOffsets='': must be JSON such as"),
    ({"endingOffsets": "earliest"}, "endingOffsets: an ending offset cannot be earliest in batch queries"),
    ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets: an ending offset cannot be earliest in batch queries"),
    ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'}, "the end 4 is before the start 5"),
    ({"startingTimestamp": "5", "endingTimestamp": "4"}, "endingTimestamp: the end 4 is before the start 5"),
    (
        {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":9}}'},
        "endingOffsets: must contain the partitions of startingOffsets; not so t-0, t-1",
    ),
    (
        {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
        "the end 4 is before the start 5",
    ),
]
REFUSED_IN_STREAMS: list[tuple[dict[str, Any], str]] = [
    ({"endingOffsets": "latest"}, "endingOffsets: an ending offset or timestamp is not valid in streaming queries"),
    ({"endingOffsetsByTimestamp": '{"t":{"0":4}}'}, "is not valid in streaming queries"),
    ({"endingTimestamp": "4"}, "is not valid in streaming queries"),
]


@pytest.mark.parametrize(
    ("options", "rule", "streaming"),
    [
        *((*case, streaming) for case in REFUSED_ALWAYS for streaming in (False, True)),
        *((*case, False) for case in REFUSED_IN_BATCHES),
        *((*case, True) for case in REFUSED_IN_STREAMS),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_and_the_rule(
    options: dict[str, Any], rule: str, *, streaming: bool
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(streaming=streaming, **options)
    assert rule in refused.value.message
    assert len(refused.value.message) < 700


def test_a_batch_warns_of_the_options_of_streams_and_both_of_those_of_sparks_consumer() -> None:
    triggers: dict[str, Any] = {"maxOffsetsPerTrigger": "5", "maxTriggerDelay": "5s"}
    assert parse(**triggers).warnings == (
        "maxOffsetsPerTrigger is ignored in batch queries",
        "maxTriggerDelay is ignored in batch queries",
    )
    assert parse(streaming=True, **triggers).warnings == ()
    assert parse(streaming=True, groupIdPrefix="x").warnings == ("groupIdPrefix is ignored",)


def test_a_property_of_the_client_that_has_no_effect_is_warned_of() -> None:
    for streaming in (False, True):
        used: dict[str, Any] = {
            "kafka__isolation__level": "read_committed",
            "kafka__request__timeout__ms": 5000,
            "kafka__ssl__truststore__location": "x.pem",
            "kafka__sasl__jaas__config": Password("secret"),
        }
        assert parse(streaming=streaming, **used).warnings == ()
        unused: dict[str, Any] = {
            "kafka__isolation__levle": "x",
            "kafka__FETCH__max__bytes": 5,
            "kafka__security__providers": "x",
        }
        ignored = parse(streaming=streaming, groupIdPrefix="x", **unused)
        assert ignored.warnings == (
            "groupIdPrefix is ignored",
            "kafka.fetch.max.bytes is ignored",
            "kafka.isolation.levle is ignored",
            "kafka.security.providers is ignored",
        )
    odd: dict[str, Any] = {"kafka__a\n" + "b" * 1000: "x"}
    (shown,) = parse(**odd).warnings
    assert len(shown) < 200
    assert "\n" not in shown


TEXTS = st.text(max_size=12) | st.sampled_from(["true", "latest", "earliest", "7", '{"t":{"0":3}}', '{"t":[0]}', "5 m"])


@given(st.dictionaries(st.sampled_from(NAMES) | st.just("kafka.isolation.level"), TEXTS, max_size=6), st.booleans())
def test_whatever_is_given_is_parsed_or_refused(options: dict[str, str], streaming: bool) -> None:
    try:
        parsed = ReadOptions.parse({"kafka.bootstrap.servers": "b:9092", **options}, streaming=streaming)
    except ConfigError:
        pass
    else:
        assert sum(name in options for name in ("subscribe", "subscribePattern", "assign")) == 1
        assert not (streaming and any(name.startswith("ending") for name in options))
        assert parsed.columns


def test_a_pattern_matches_whole_names() -> None:
    counts = {"a1": 2, "a2": 1, "ba1": 1, "__a1": 1, "a1b": 1}
    assert Subscription(pattern=r"a\d|__a\d").select(counts) == {
        TopicPartition("a1", 0),
        TopicPartition("a1", 1),
        TopicPartition("a2", 0),
        TopicPartition("__a1", 0),
    }
    assert Subscription(pattern="x").select(counts) == frozenset()


def test_topics_are_not_scanned_for_each_partition() -> None:
    class Topics(tuple[str, ...]):
        def __contains__(self, topic: object) -> bool:
            raise AssertionError(f"scanned for {topic}")

    assert Subscription(topics=Topics(["t", "u"])).select({"t": 2, "v": 1}) == {T0, T1}


def test_a_subscription_and_an_assignment_have_the_partitions_that_exist() -> None:
    assert Subscription(topics=("t", "u")).select({"t": 2, "v": 1}) == {T0, T1}
    assert Subscription(partitions=(T1, TopicPartition("t", 2), TopicPartition("u", 0))).select({"t": 2}) == {T1}
    assert Subscription(partitions=(T1, T0)).names == ("t",)
    assert Subscription(pattern="t").names is None


@pytest.mark.parametrize(
    ("asked", "topics", "value"),
    [
        ("latest", ["t"], LATEST),
        ({0: 4, 1: -1}, ["t"], {T0: 4, T1: -1}),
        ({"t": {1: 4}, "u": {0: -1}}, ["t", "u"], {T1: 4, TopicPartition("u", 0): -1}),
    ],
)
def test_positions_in_python_are_names_or_offsets_by_partition_and_topic(
    asked: Any, topics: list[str], value: object
) -> None:
    options = ReadOptions.of(
        topics,
        starting_offsets="earliest",
        ending_offsets=asked,
        columns=("key",),
        min_partitions=None,
        skip_malformed=False,
    )
    assert options.subscription.topics == tuple(topics)
    assert options.ending.value == value


@pytest.mark.parametrize(
    ("argument", "values", "rule"),
    [
        (
            "topic",
            [5, None, b"t", [], ["t", 5], [b"t"], [None], ["t", ""], ""],
            "must be the name of a topic, or a list",
        ),
        ("starting_offsets", [5, None, b"x", [1]], "must be 'earliest', 'latest' or an offset for each partition"),
        ("ending_offsets", [5, None, ["latest"]], "must be 'earliest', 'latest' or an offset for each partition"),
        ("min_partitions", ["5", 5.0, True, [1], 0], "must be an integer between 1 and 100000"),
        ("starting_timestamp_ms", ["5", 5.0, True, -1], "must be an integer between 0 and"),
        ("columns", [5, "value", []], "must be a list of at least one of key, value"),
        ("skip_malformed", ["false", 0, None], "must be True or False"),
        ("fail_on_data_loss", ["false", 0, None], "must be True or False"),
    ],
)
def test_arguments_of_a_wrong_type_are_refused_by_name(argument: str, values: list[Any], rule: str) -> None:
    given: dict[str, Any] = {
        "topic": "t",
        "starting_offsets": "earliest",
        "ending_offsets": "latest",
        "columns": None,
        "min_partitions": None,
        "skip_malformed": False,
    }
    for value in values:
        with pytest.raises(ConfigError) as refused:
            ReadOptions.of(**(given | {argument: value}))
        assert refused.value.message.startswith(f"{argument}={value!r}: {rule}")


def test_options_that_are_no_mapping_of_names_are_refused() -> None:
    wrong: tuple[Any, ...] = (5, None, {5: "x"})
    for options in wrong:
        with pytest.raises(ConfigError):
            ReadOptions.parse(options, streaming=False)


def test_integers_of_numpy_are_integers() -> None:
    number: Any = np.int64
    options = ReadOptions.of(
        ("t",),
        starting_offsets={number(0): number(4)},
        ending_offsets="latest",
        columns=None,
        min_partitions=number(3),
        skip_malformed=False,
    )
    assert (options.starting.value, options.min_partitions) == ({T0: 4}, 3)
    assert type(options.min_partitions) is int


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ("beginning", "starting_offsets='beginning': must be 'earliest', 'latest' or an offset for each partition"),
        ({0: 1}, "must have the offsets by topic and partition, since several topics are read"),
        ({"t": {0: 1}, "u": 3}, "must map topics to partitions"),
        ({"t": {-1: 1}}, "which is not the number of a partition"),
        ({"t": {0: 1.5}}, "t-0: 1.5 must be an integer"),
        ("latest", "starting_offsets: a starting offset cannot be latest"),
    ],
)
def test_wrong_positions_in_python_are_refused(asked: Any, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        ReadOptions.of(
            ["t", "u"],
            starting_offsets=asked,
            ending_offsets="latest",
            columns=("key",),
            min_partitions=None,
            skip_malformed=False,
        )
