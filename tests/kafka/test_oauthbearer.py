"""Kafka's Java client logs in by OAUTHBEARER: with unsecured tokens, and with signed ones from a token endpoint."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.compat.test_oauthbearer import PREFIX, UNSECURED, secured
from tests.support.kafka_peer import java
from tests.support.token_issuer import claims, http_endpoint, jwks, signed, signing_key

pytestmark = pytest.mark.kafka
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
LOGIN = f"{PACKAGE}.OAuthBearerLoginModule required"


def produce(servers: str, properties: dict[str, str], path: Path) -> str:
    """Ten records to a new topic; what Kafka's tool says about its offsets."""
    file = path / "client.properties"
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **properties}
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    to = ("--bootstrap-server", servers, "--command-config", str(file), "--topic", "t")
    java("org.apache.kafka.tools.TopicCommand", "--create", *to)
    load = ("--topic", "t", "--producer-props", f"bootstrap.servers={servers}", "--producer.config", str(file))
    records = ("--num-records", "10", "--record-size", "10", "--throughput", "-1")
    java("org.apache.kafka.tools.ProducerPerformance", *load, *records)
    return java("org.apache.kafka.tools.GetOffsetShell", *to)


def test_unsecured_tokens(tmp_path: Path) -> None:
    config: dict[str, Any] = {f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": UNSECURED}
    with secured(tmp_path / "cluster", config) as running:
        jaas = {"sasl.jaas.config": f'{LOGIN} unsecuredLoginStringClaim_sub="alice";'}
        assert "t:0:10" in produce(running.bootstrap_servers, jaas, tmp_path)


def test_signed_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_endpoint() as keys, http_endpoint() as tokens:
        keys.serve(jwks(signing_key()))
        token = signed(claims(time.time(), exp=int(time.time()) + 600, scope="kafka"))
        tokens.serve(json.dumps({"access_token": token, "expires_in": 600}).encode())
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.url}"
        monkeypatch.setenv("JDK_JAVA_OPTIONS", f"{allowed} {os.environ.get('JDK_JAVA_OPTIONS', '')}".strip())
        with secured(tmp_path / "cluster", {"sasl.oauthbearer.jwks.endpoint.url": keys.url}) as running:
            properties = {
                "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": tokens.url,
                "sasl.jaas.config": f'{LOGIN} clientId="me" clientSecret="secret" scope="kafka";',
            }
            assert "t:0:10" in produce(running.bootstrap_servers, properties, tmp_path)
