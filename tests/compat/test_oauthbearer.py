"""Stock clients log in by OAUTHBEARER, and what an issuer does, or an attacker, disturbs no other client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.security.sasl.client_credentials import ClientCredentials
from raylog.security.sasl.mechanism import SaslClient
from raylog.security.sasl.oauthbearer import OAuthBearerClient
from raylog.security.sasl.plain import PlainClient
from tests.compat.conftest import Complaints
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.connection import BlockingConnection, connect_tcp
from tests.support.token_issuer import AUDIENCE, ISSUER, Endpoint, claims, http_endpoint, jwks, signed, signing_key

pytestmark = pytest.mark.compat
ANSWER_SECONDS = 30.0
MAY_BE_LOGGED = ("invalid_token",)
"""The broker closes a connection 100 ms after it has refused its token, and the client may have tried again by then."""
PREFIX = "listener.name.sasl_plaintext."
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


@contextmanager
def secured(path: Path, config: dict[str, Any]) -> Iterator[RunningCluster]:
    given = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
        f"{PREFIX}plain.sasl.jaas.config": f'{PLAIN_LOGIN} user_bob="builder";',
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        **config,
    }
    with cluster_thread(given, path) as running:
        yield running


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with http_endpoint() as made:
        made.serve(jwks(signing_key()))
        yield made


@pytest.fixture(scope="module")
def servers(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = {"sasl.oauthbearer.jwks.endpoint.url": endpoint.url}
    with secured(tmp_path_factory.mktemp("oauthbearer"), config) as running:
        yield running.bootstrap_servers


def valid_token() -> str:
    return signed(claims(time.time(), exp=int(time.time()) + 600))


def wrong_token() -> str:
    return signed(claims(time.time(), aud="elsewhere"))


def confluent_settings(servers: str, token: Callable[[], str]) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token(), time.time() + 600, "", {"traceId": "t1"}),
    }


def copy_by_confluent(settings: dict[str, Any], topic: str) -> bytes | None:
    producer = Producer(settings)
    producer.produce(topic, b"confluent", partition=0)
    assert producer.flush(ANSWER_SECONDS) == 0
    consumer = Consumer({**settings, "group.id": "g-confluent", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(ANSWER_SECONDS)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def test_confluent_kafka(servers: str) -> None:
    assert copy_by_confluent(confluent_settings(servers, valid_token), "by-confluent") == b"confluent"


def test_confluent_kafka_by_the_client_credentials_grant(servers: str) -> None:
    with http_endpoint() as issuer:
        issuer.serve(json.dumps({"access_token": valid_token(), "expires_in": 600, "token_type": "Bearer"}).encode())
        settings = confluent_settings(servers, valid_token)
        del settings["oauth_cb"]
        oidc = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "secret",
            "sasl.oauthbearer.token.endpoint.url": issuer.url,
        }
        assert copy_by_confluent({**settings, **oidc}, "by-grant") == b"confluent"
        assert issuer.requests


def test_confluent_kafka_reports_a_refused_token(servers: str, complaints: Complaints) -> None:
    errors: list[str] = []
    settings = {**confluent_settings(servers, wrong_token), "error_cb": lambda error: errors.append(error.str())}
    producer = Producer(settings)
    deadline = time.monotonic() + ANSWER_SECONDS
    while not any("invalid_token" in error for error in errors):
        assert time.monotonic() < deadline, errors
        producer.poll(0.1)
    producer.purge()
    producer.flush(0)
    complaints.lines.clear()


class KafkaPythonToken(KafkaPythonTokens):  # type: ignore[misc]
    def __init__(self, token: Callable[[], str]) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token()


def kafka_python_settings(servers: str, token: Callable[[], str]) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": KafkaPythonToken(token),
    }


def test_kafka_python(servers: str) -> None:
    settings = kafka_python_settings(servers, valid_token)
    producer = KafkaProducer(**settings)
    producer.send("by-kafka-python", b"kafka-python", partition=0).get(ANSWER_SECONDS)
    producer.close()
    consumer = KafkaConsumer("by-kafka-python", group_id="g-kafka-python", auto_offset_reset="earliest", **settings)
    try:
        assert next(iter(consumer)).value == b"kafka-python"
    finally:
        consumer.close()


def test_kafka_python_reports_a_refused_token(servers: str, complaints: Complaints) -> None:
    with pytest.raises(KafkaPythonError):
        KafkaProducer(**kafka_python_settings(servers, wrong_token), bootstrap_timeout_ms=2000)
    assert any("authentication failed" in line for line in complaints.lines)
    complaints.lines.clear()


class AiokafkaToken(AiokafkaTokens):  # type: ignore[misc]
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token()


def aiokafka_settings(servers: str, token: Callable[[], str]) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": AiokafkaToken(token),
    }


def test_aiokafka(servers: str) -> None:
    async def copied() -> bytes | None:
        settings = aiokafka_settings(servers, valid_token)
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("by-aiokafka", b"aiokafka", partition=0)
        consumer = AIOKafkaConsumer("by-aiokafka", group_id="g-aiokafka", auto_offset_reset="earliest", **settings)
        async with consumer:
            value: bytes | None = (await asyncio.wait_for(consumer.getone(), ANSWER_SECONDS)).value
            return value

    assert asyncio.run(copied()) == b"aiokafka"


def test_aiokafka_does_not_get_in_by_a_refused_token(servers: str, complaints: Complaints) -> None:
    """It takes the error for the end of the exchange, and is disconnected when it sends its next request."""

    async def start() -> None:
        producer = AIOKafkaProducer(**aiokafka_settings(servers, wrong_token))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(Exception, match=r"Unable to bootstrap|Connection"):
        asyncio.run(start())
    assert any("connection closed" in line for line in complaints.lines)
    complaints.lines.clear()


def test_kcat_by_unsecured_tokens(tmp_path: Path) -> None:
    config = {f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": UNSECURED}
    with secured(tmp_path, config) as running:
        settings = (
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt=true",
            "sasl.oauthbearer.config=principal=carol",
        )
        options = [option for setting in settings for option in ("-X", setting)]
        base = ["kcat", "-b", running.bootstrap_servers, *options]
        subprocess.run([*base, "-P", "-t", "by-kcat"], input=b"kcat\n", check=True, timeout=ANSWER_SECONDS)
        consume = [*base, "-C", "-t", "by-kcat", "-o", "beginning", "-c", "1"]
        done = subprocess.run(consume, stdout=subprocess.PIPE, check=True, timeout=ANSWER_SECONDS)
        assert done.stdout == b"kcat\n"


def log_in(servers: str, client: SaslClient) -> BlockingConnection:
    host, _, port = servers.partition(":")
    return BlockingConnection(connect_tcp(host, int(port), login=lambda: client), client_id="test")


def test_our_own_client_by_the_client_credentials_grant(servers: str) -> None:
    with http_endpoint() as issuer:
        issuer.serve(json.dumps({"access_token": valid_token(), "expires_in": 600}).encode())
        token = ClientCredentials(issuer.url, "me", Password("secret"))
        connection = log_in(servers, OAuthBearerClient(token()))
    assert connection.call(MetadataRequest(topics=())).brokers
    connection.close()


def test_a_hanging_endpoint_and_unknown_keys_delay_nobody(tmp_path: Path, complaints: Complaints) -> None:
    """All keys that are known stay in use, and a token with an unknown key is refused without waiting."""
    with http_endpoint() as endpoint:
        endpoint.serve(jwks(signing_key()))
        config = {
            "sasl.oauthbearer.jwks.endpoint.url": endpoint.url,
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "100",
            "connection.failed.authentication.delay.ms": "0",
        }
        with secured(tmp_path, config) as running:
            servers = running.bootstrap_servers
            hanging = len(endpoint.requests)
            endpoint.hang()
            while len(endpoint.requests) == hanging:
                time.sleep(0.01)
            seen = len(endpoint.requests)
            for number in range(50):
                unknown = signed(claims(time.time()), kid=f"k{number}")
                with pytest.raises(KafkaError) as refused:
                    log_in(servers, OAuthBearerClient(Password(unknown)))
                assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
                for client in (OAuthBearerClient(Password(valid_token())), PlainClient("bob", Password("builder"))):
                    log_in(servers, client).close()
            assert len(endpoint.requests) - seen <= 2
            endpoint.stopped.set()
    complaints.lines.clear()
