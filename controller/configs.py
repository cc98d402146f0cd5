"""Commands about configuration that is changed while brokers run: of topics, of one broker, of all brokers.

What is set is kept as text, as it was given. It is checked as a whole before anything is recorded: a set of values that
a broker could not take never reaches one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from raylog.config.broker import BROKER_CONFIG, with_dynamic_configs
from raylog.config.topic import TOPIC_CONFIG, UNCLEAN_LEADER_ELECTION_ENABLE, topic_configs
from raylog.controller.elections import TopicRule, uncleanly
from raylog.core.config import Configs, ConfigSchema, ConfigType
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.metadata.configs import ALL_BROKERS, effective_configs
from raylog.metadata.image import MetadataImage, TopicImage
from raylog.metadata.records import BrokerConfigsChanged, MetadataRecord, TopicConfigsChanged
from raylog.metadata.topic_names import check_topic_name


class ConfigOperation(IntEnum):
    """The numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    operation: ConfigOperation
    value: str | None


def may_be_led_uncleanly(image: MetadataImage, static: Configs) -> TopicRule:
    """Whether a topic has unclean.leader.election.enable, by itself or by its brokers; as things stand now."""
    return _unclean_by(effective_configs(image, static, ALL_BROKERS))


def _unclean_by(brokers: Configs) -> TopicRule:
    known: dict[UUID, bool] = {}

    def rule(topic: TopicImage) -> bool:
        if topic.topic_id not in known:
            known[topic.topic_id] = topic_configs(topic.configs, brokers)[UNCLEAN_LEADER_ELECTION_ENABLE]
        return known[topic.topic_id]

    return rule


def alter_topic_configs(
    image: MetadataImage, topic: str, changes: Sequence[ConfigChange], *, static: Configs, replace: bool
) -> Outcome[None, MetadataRecord]:
    """`replace`: what is not named goes back to its default. Raises KafkaError with the code AlterConfigs answers.

    Where unclean elections are allowed from now on, they are held at once.
    """
    check_topic_name(topic)
    found = image.topics.get(topic)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    brokers = effective_configs(image, static, ALL_BROKERS)
    in_force = topic_configs(found.configs, brokers)
    texts = _changed({} if replace else found.configs, changes, TOPIC_CONFIG, in_force)
    records: list[MetadataRecord] = [TopicConfigsChanged(found.topic_id, tuple(sorted(texts.items())))]
    if topic_configs(texts, brokers)[UNCLEAN_LEADER_ELECTION_ENABLE]:
        records += uncleanly(image, found)
    return Outcome(None, records)


def alter_broker_configs(
    image: MetadataImage, broker_id: BrokerId, changes: Sequence[ConfigChange], *, static: Configs, replace: bool
) -> Outcome[None, MetadataRecord]:
    """Of one broker, or of ALL_BROKERS. Raises KafkaError with the code AlterConfigs answers."""
    if broker_id != ALL_BROKERS and broker_id not in image.brokers:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no broker {broker_id}.")
    fixed = sorted(
        change.name
        for change in changes
        if change.name in BROKER_CONFIG.keys and not BROKER_CONFIG.keys[change.name].dynamic
    )
    if fixed:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot be changed while a broker runs: {', '.join(fixed)}.")
    before = image.broker_configs.get(broker_id, {})
    texts = _changed({} if replace else before, changes, BROKER_CONFIG, effective_configs(image, static, broker_id))
    after = with_dynamic_configs(static, cluster={}, broker=texts)
    records: list[MetadataRecord] = [BrokerConfigsChanged(broker_id, tuple(sorted(texts.items())))]
    if broker_id == ALL_BROKERS:
        may_be_unclean = _unclean_by(after)
        for topic in image.topics.values():
            if may_be_unclean(topic):
                records += uncleanly(image, topic)
    return Outcome(None, records)


def _changed(
    before: Mapping[str, str], changes: Sequence[ConfigChange], schema: ConfigSchema, in_force: Configs
) -> dict[str, str]:
    texts = dict(before)
    named: set[str] = set()
    for change in changes:
        if change.name in named:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} is named twice.")
        named.add(change.name)
        key = schema.keys.get(change.name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name}: unknown, or not served by raylog")
        if change.operation == ConfigOperation.DELETE:
            texts.pop(change.name, None)
            continue
        if change.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name}: needs a value")
        if change.operation == ConfigOperation.SET:
            texts[change.name] = change.value
            continue
        if key.type != ConfigType.LIST:
            message = f"{change.name} is no list: nothing can be added to it or taken from it."
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        items = list(in_force[key])
        for item in (part.strip() for part in change.value.split(",")):
            if change.operation == ConfigOperation.APPEND and item not in items:
                items.append(item)
            elif change.operation == ConfigOperation.SUBTRACT and item in items:
                items.remove(item)
        texts[change.name] = ",".join(items)
    return texts
