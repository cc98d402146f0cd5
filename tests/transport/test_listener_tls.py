"""New keys that cannot be used are tried again, until they can be."""

from __future__ import annotations

import logging
import ssl
from errno import EMFILE
from pathlib import Path

import pytest

from raylog.config.table import broker_configs
from raylog.config.tls import TlsSettings, listener_tls_settings
from raylog.core.errors import ConfigError
from raylog.transport.listener_tls import ListenerTls


@pytest.mark.parametrize("error", [ConfigError("it cannot be read"), OSError(EMFILE, "it cannot be read")])
def test_new_keys_that_cannot_be_used_at_once_are_used_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    keys = tmp_path / "keys.pem"
    keys.write_text("old")
    errors: list[Exception] = []

    def make(settings: TlsSettings) -> ssl.SSLContext:
        if errors:
            raise errors[0]
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    configs = broker_configs({"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(keys)})
    tls = ListenerTls("SSL", lambda: listener_tls_settings(configs, "SSL", by_sasl=False), make=make)
    before = tls.context
    keys.write_text("another")
    errors.append(error)
    with caplog.at_level(logging.INFO, "raylog.transport"):
        for _ in range(3):
            tls.refresh()
        assert tls.context is before
        [refused] = caplog.records
        assert (refused.message, "it cannot be read" in refused.__dict__["reason"]) == ("TLS keys not changed", True)
        errors.clear()
        tls.refresh()
        assert tls.context is not before
        used = tls.context
        tls.refresh()
        assert tls.context is used
        assert caplog.messages == ["TLS keys not changed", "TLS keys changed"]
