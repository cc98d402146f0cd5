"""(shell) Checks new TLS keys and SASL settings of listeners before they are stored. Reads files: run it in a job."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from raylog.config.tls import TlsSettings, listener_tls_settings
from raylog.core.config import Configs
from raylog.core.errors import ConfigError
from raylog.security.tls import check_links, server_context, store_files
from raylog.transport.authentication import check_listener
from raylog.transport.listeners import plan_listeners


def check_listener_keys(configs: Configs, names: Collection[str]) -> None:
    """Check that these listeners could use their keys, and authenticate clients. Raises ConfigError."""
    for listener in plan_listeners(configs):
        if listener.name in names:
            if listener.security.by_tls:
                settings = listener_tls_settings(configs, listener.name, by_sasl=listener.security.by_sasl)
                _check_tls(settings, internal=listener.internal)
            check_listener(listener, configs, reads_keytabs=True)


def _check_tls(settings: TlsSettings, *, internal: bool) -> None:
    for location in store_files(settings):
        if not Path(location).is_file():  # a read of a pipe could wait forever
            raise ConfigError(f"{location!r}: this broker has no such file")
    server_context(settings)
    if internal:
        check_links(settings)
