"""Commands that change configuration at run time: of topics and groups, of one broker, or the defaults of all brokers.

Values are stored as text, as the client sent them; passwords are encrypted. The changed values are validated before a
record is written. Values that were stored under other rules, by an earlier version, do not prevent a change of other
keys.

Keys of TLS and SASL can be changed for a listener of one broker (KIP-226). That broker has validated the files that
they name before it forwards the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from uuid import UUID

from raylog.config.client_metrics import (
    CLIENT_METRICS_CONFIG,
    SUBSCRIPTIONS_MAX,
    TEXT_CHARACTERS_MAX,
    client_metrics_configs,
)
from raylog.config.cross_checks import check_rules
from raylog.config.group_resource import GROUP_CONFIG, check_group_together, group_configs
from raylog.config.table import BROKER_CONFIG, with_dynamic_configs
from raylog.config.topic import TOPIC_CONFIG, check_topic_together, topic_configs, topic_replication
from raylog.controller.elections import TopicRule, unclean_elections
from raylog.core.config import ConfigKey, Configs, ConfigSchema, ConfigType, overriding_listener
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.core.password import Password
from raylog.metadata.effective_configs import ALL_BROKERS, effective_configs
from raylog.metadata.image import MetadataImage, TopicImage
from raylog.metadata.records import (
    BrokerConfigsChanged,
    ClientMetricsConfigsChanged,
    GroupConfigsChanged,
    MetadataRecord,
    TopicConfigsChanged,
)
from raylog.metadata.topic_names import check_topic_name
from raylog.security.password_cipher import PasswordCipher

VALUE_BYTES_MAX: Final = 32767
"""Longer values cannot be encoded in DescribeConfigs v1-3. The same limit as in Kafka."""


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


def unclean_election_rule(image: MetadataImage, static: Configs) -> TopicRule:
    """Whether unclean.leader.election.enable is true for a topic, by its own configuration or by the brokers'."""
    return _unclean_by(effective_configs(image, static, ALL_BROKERS))


def _unclean_by(brokers: Configs) -> TopicRule:
    known: dict[UUID, bool] = {}

    def rule(topic: TopicImage) -> bool:
        if topic.topic_id not in known:
            settings = topic_replication(topic_configs(topic.configs, brokers))
            known[topic.topic_id] = settings.unclean_leader_election
        return known[topic.topic_id]

    return rule


def alter_topic_configs(
    image: MetadataImage, topic: str, changes: Sequence[ConfigChange], *, static: Configs, replace: bool
) -> Outcome[None, MetadataRecord]:
    """Change keys of a topic; with `replace`, keys that `changes` does not contain return to their defaults.

    If the change allows unclean leader election, partitions without a leader elect one at once.
    Raises KafkaError with the code that AlterConfigs returns.
    """
    check_topic_name(topic)
    found = image.topics.get(topic)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    brokers = effective_configs(image, static, ALL_BROKERS)
    in_force = topic_configs(found.configs, brokers)
    texts = _changed({} if replace else found.configs, changes, TOPIC_CONFIG, in_force)
    records: list[MetadataRecord] = [TopicConfigsChanged(found.topic_id, tuple(sorted(texts.items())))]
    after = topic_configs(texts, brokers)
    check_topic_together(after)
    if topic_replication(after).unclean_leader_election:
        records += unclean_elections(image, found)
    return Outcome(None, records)


def alter_group_configs(
    image: MetadataImage, group_id: str, changes: Sequence[ConfigChange], *, static: Configs, replace: bool
) -> Outcome[None, MetadataRecord]:
    """Change keys of a group, which need not exist. Raises KafkaError with the code that AlterConfigs returns."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    brokers = effective_configs(image, static, ALL_BROKERS)
    before = image.group_configs.get(group_id, {})
    texts = _changed({} if replace else before, changes, GROUP_CONFIG, group_configs(before, brokers))
    check_group_together(group_configs(texts, brokers), brokers)
    return Outcome(None, [GroupConfigsChanged(group_id, tuple(sorted(texts.items())))])


def alter_client_metrics(
    image: MetadataImage, name: str, changes: Sequence[ConfigChange], *, replace: bool
) -> Outcome[None, MetadataRecord]:
    """Change keys of a subscription; without any it is removed. Raises KafkaError with the code of AlterConfigs."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default client metrics resources are not allowed.")
    if len(name) > TEXT_CHARACTERS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The name has more than {TEXT_CHARACTERS_MAX} characters.")
    before = image.client_metrics.get(name, {})
    texts = _changed({} if replace else before, changes, CLIENT_METRICS_CONFIG, client_metrics_configs(before))
    if texts and name not in image.client_metrics and len(image.client_metrics) >= SUBSCRIPTIONS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are {SUBSCRIPTIONS_MAX} client metrics resources already.")
    return Outcome(None, [ClientMetricsConfigsChanged(name, tuple(sorted(texts.items())))])


def alter_broker_configs(
    image: MetadataImage,
    broker_id: BrokerId,
    changes: Sequence[ConfigChange],
    *,
    static: Configs,
    replace: bool,
    cipher: PasswordCipher,
) -> Outcome[None, MetadataRecord]:
    """Change keys of one broker, or of ALL_BROKERS. Raises KafkaError with the code that AlterConfigs returns."""
    if broker_id != ALL_BROKERS and broker_id not in image.brokers:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is not registered.")
    keys = [BROKER_CONFIG.key(change.name) for change in changes]
    _check_dynamic(broker_id, keys)
    for change, key in zip(changes, keys, strict=True):
        if change.operation == ConfigOperation.DELETE:  # an earlier version may have stored it
            continue
        if key.cluster_wide and broker_id != ALL_BROKERS:
            message = f"Can only be changed for all brokers, not for a single one: {change.name}."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        listener = overriding_listener(change.name).upper()
        if listener and not image.brokers[broker_id].endpoint(listener):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name}: broker {broker_id} has no listener {listener}.")
    before = {} if replace else image.broker_configs.get(broker_id, {})
    passwords = {} if replace else dict(image.broker_passwords.get(broker_id, {}))
    texts = _changed(before, changes, BROKER_CONFIG, effective_configs(image, static, broker_id))
    for key in keys:
        if key.is_sensitive:
            passwords.pop(key.name, None)
            if (text := texts.pop(key.name, None)) is not None:
                passwords[key.name] = cipher.encrypt(Password(text), broker_id=broker_id, key=key.name)
    _check_together(image, static, broker_id, texts)
    changed = BrokerConfigsChanged(broker_id, tuple(sorted(texts.items())), tuple(sorted(passwords.items())))
    records: list[MetadataRecord] = [changed]
    if broker_id == ALL_BROKERS:
        allows_unclean = _unclean_by(with_dynamic_configs(static, cluster=texts, broker={}))
        for topic in image.topics.values():
            if allows_unclean(topic):
                records += unclean_elections(image, topic)
    return Outcome(None, records)


def _check_dynamic(broker_id: BrokerId, keys: Sequence[ConfigKey[object]]) -> None:
    """Check that these keys can be changed while a broker runs, for a broker or for all. Raises KafkaError."""
    if read_only := sorted(key.name for key in keys if not key.dynamic and not key.dynamic_per_listener):
        message = f"Cannot be changed while a broker runs: {', '.join(read_only)}."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if not_prefixed := sorted(key.name for key in keys if not key.dynamic):
        message = (
            "Can only be changed for a listener, as listener.name.<name>.<key>, while a broker runs:"
            f" {', '.join(not_prefixed)}."
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    of_listeners = sorted(key.name for key in keys if overriding_listener(key.name))
    if of_listeners and broker_id == ALL_BROKERS:
        message = f"Can only be changed for single brokers, not for all of them: {', '.join(of_listeners)}."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _check_together(image: MetadataImage, static: Configs, broker_id: BrokerId, texts: Mapping[str, str]) -> None:
    """Check the changed keys with those that are set elsewhere, for every broker concerned. Raises ConfigError."""
    stored = image.broker_configs
    changed = {name for name, _ in stored.get(broker_id, {}).items() ^ texts.items()}
    if broker_id != ALL_BROKERS:
        cluster = stored.get(ALL_BROKERS, {})
        check_rules(with_dynamic_configs(static, cluster=cluster, broker=texts), changed)
        return
    check_rules(with_dynamic_configs(static, cluster=texts, broker={}), changed)
    for other, own in stored.items():
        if other != ALL_BROKERS:
            try:
                check_rules(with_dynamic_configs(static, cluster=texts, broker=own), changed - own.keys())
            except ConfigError as error:
                raise ConfigError(f"broker {other}: {error.message}") from None


def _changed(
    before: Mapping[str, str], changes: Sequence[ConfigChange], schema: ConfigSchema, in_force: Configs
) -> dict[str, str]:
    texts = dict(before)
    named: set[str] = set()
    for change in changes:
        if change.name in named:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} is contained twice in the request.")
        named.add(change.name)
        if change.operation == ConfigOperation.DELETE:  # of an unknown key as well: MirrorMaker copies defaults so
            texts.pop(change.name, None)
            continue
        key = schema.key(change.name)
        if change.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name}: must not be null")
        if change.operation == ConfigOperation.SET:
            texts[change.name] = change.value
            continue
        if key.type != ConfigType.LIST:
            message = f"{change.name} is not a list: APPEND and SUBTRACT do not apply to it."
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        items = dict.fromkeys(in_force[key])
        for item in (part.strip() for part in change.value.split(",")):
            if change.operation == ConfigOperation.APPEND:
                items[item] = None
            else:
                items.pop(item, None)
        texts[change.name] = ",".join(items)
    changed = {name: texts[name] for name in named if name in texts}
    schema.parse(changed)
    _check_sizes(changed)
    return texts


def _check_sizes(texts: Mapping[str, str]) -> None:
    """Raises KafkaError(INVALID_CONFIG) for a value of more than VALUE_BYTES_MAX."""
    for name, text in texts.items():
        if len(text.encode()) > VALUE_BYTES_MAX:
            message = (
                f"{name}: The configuration value cannot be added because it exceeds the maximum value size of"
                f" {VALUE_BYTES_MAX} bytes."
            )
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
