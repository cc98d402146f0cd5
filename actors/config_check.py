"""The checks of a configuration for all brokers, before any of them is started with it. Pure."""

from __future__ import annotations

from collections.abc import Collection

from raylog.actors.given_config import CLUSTER_WIDE, GivenConfig, not_for_one
from raylog.config.authorization import authorizer_settings
from raylog.config.table import broker_configs
from raylog.core.config import Configs
from raylog.core.errors import ConfigError
from raylog.metadata.node_roles import is_coordinator
from raylog.transport.authentication import check_authentication, check_controller_authentication
from raylog.transport.listeners import plan_controller_listeners, plan_listeners


def check_config(given: GivenConfig, broker_ids: Collection[int]) -> None:
    """Raises ConfigError, which names the broker if it has a configuration of its own."""
    given.check_addresses(broker_ids)
    if given.controller_port is not None:
        check_controller_authentication(broker_configs(given.of_controller()))
    for broker_id in (*broker_ids, *filter(is_coordinator, given.of_single)):
        try:
            for key in given.of_single.get(broker_id, ()):
                if key in CLUSTER_WIDE:
                    raise not_for_one(key)
            of_node = given.of_coordinator if is_coordinator(broker_id) else given.of_broker
            configs = broker_configs(of_node(broker_id))
            check_authentication(configs)
            if given.secure:
                _check_secure(configs)
        except ConfigError as error:
            if broker_id not in given.of_single:
                raise
            raise ConfigError(f"broker {broker_id}: {error.message}") from None


def _check_secure(configs: Configs) -> None:
    """Raises ConfigError for what a secure cluster must not have."""
    if authorizer_settings(configs) is None:
        raise ConfigError("authorizer.class.name: a secure cluster must have an authorizer")
    for listener in (*plan_listeners(configs), *plan_controller_listeners(configs)):
        if not listener.internal and not listener.security.by_tls:
            rule = f"{listener.name} has protocol {listener.security.value}; a secure cluster permits SASL_SSL and SSL"
            raise ConfigError(f"listeners: {rule}")
