"""A listener with OAUTHBEARER: where its keys come from, how long a session lasts, and which settings are invalid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.config.oauthbearer import token_settings
from raylog.config.table import broker_configs
from raylog.core.clock import Now
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.core.password import Password
from raylog.metadata.records import BrokerConfigsChanged
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.security.principal import Principal
from raylog.security.sasl.oauthbearer import OAuthBearerClient
from raylog.transport.authentication import check_authentication
from raylog.transport.node import Job, JobKind
from raylog.transport.token_keys import TokenKeys
from tests.broker.test_sasl import connect, log_in, serves
from tests.security.sasl.test_json_web_tokens import unsecured
from tests.support.certificates import Certificates
from tests.support.direct_broker import DirectBroker
from tests.support.token_issuer import AUDIENCE, ISSUER, Endpoint, claims, http_endpoint, jwks, signed, signing_key

PREFIX = "listener.name.sasl_plaintext.oauthbearer."
HANDLER = f"{PREFIX}sasl.server.callback.handler.class"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
UNSECURED = f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
LOGIN = f"{PACKAGE}.OAuthBearerLoginModule required"


def config(url: str, **changed: str) -> dict[str, Any]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "300000",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        **changed,
    }


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with http_endpoint() as made:
        made.serve(jwks(signing_key()))
        yield made


@pytest.fixture
def broker(endpoint: Endpoint) -> DirectBroker:
    return DirectBroker(config(endpoint.url))


def now_s(broker: DirectBroker) -> int:
    return broker.now().wall_ms // 1000


def answer_to(broker: DirectBroker, token: str) -> Any:
    """The last answer of the broker to a client on a connection of its own."""
    return log_in(broker, connect(broker), OAuthBearerClient(Password(token)))


def test_a_signed_token_authenticates_until_it_expires(broker: DirectBroker) -> None:
    connection = connect(broker)
    answer = log_in(broker, connection, OAuthBearerClient(Password(signed(claims(now_s(broker))))))
    assert answer.error_code == ErrorCode.NONE
    assert 59_000 <= answer.session_lifetime_ms <= 60_000
    assert connection.client.principal == Principal("User", "alice")
    assert serves(broker, connection)
    broker.pass_time(60_000)
    assert not serves(broker, connection)


def test_a_session_is_prolonged_with_a_new_token(broker: DirectBroker) -> None:
    connection = connect(broker)
    for _ in range(3):
        log_in(broker, connection, OAuthBearerClient(Password(signed(claims(now_s(broker))))))
        assert serves(broker, connection)
        broker.pass_time(50_000)
    assert serves(broker, connection)
    refused = log_in(broker, connection, OAuthBearerClient(Password(signed(claims(now_s(broker), sub="bob")))))
    assert "Cannot change principals" in refused.error_message


def test_an_invalid_token_is_refused_by_the_error_of_the_protocol(
    broker: DirectBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    token = signed(claims(now_s(broker), aud="elsewhere"))
    answer = answer_to(broker, token)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == '{"status":"invalid_token"}'
    logged = "".join(str(vars(record)) for record in caplog.records)
    assert "its audience is not the expected one" in logged
    assert token not in logged


def test_keys_in_a_file_are_read_again(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(jwks(signing_key()))
    broker = DirectBroker(config(keys.as_uri()))
    assert answer_to(broker, signed(claims(now_s(broker)))).error_code == ErrorCode.NONE
    other = signing_key("ES256", "two")
    keys.write_bytes(jwks(other))
    broker.pass_time(300_000)
    assert answer_to(broker, signed(claims(now_s(broker)))).error_code != ErrorCode.NONE
    assert answer_to(broker, signed(claims(now_s(broker)), other)).error_code == ErrorCode.NONE


def test_a_new_key_is_known_after_the_first_token_that_names_it(broker: DirectBroker, endpoint: Endpoint) -> None:
    other = signing_key("ES256", "two")
    endpoint.serve(jwks(signing_key(), other))
    assert answer_to(broker, signed(claims(now_s(broker)), other)).error_code != ErrorCode.NONE
    broker.pass_time(100)
    assert answer_to(broker, signed(claims(now_s(broker)), other)).error_code == ErrorCode.NONE
    assert len(endpoint.requests) == 2


def test_a_thousand_unknown_keys_cause_few_requests(broker: DirectBroker, endpoint: Endpoint) -> None:
    payload = claims(now_s(broker), exp=now_s(broker) + 3600)
    for number in range(1000):
        assert answer_to(broker, signed(payload, kid=f"k{number}")).error_code != ErrorCode.NONE
        broker.pass_time(10)
    assert len(endpoint.requests) < 25, "110 s: backoffs of 0.1 s, twice as long each time, up to 10 s"
    assert answer_to(broker, signed(payload)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("garbage", [b"", b"<html>", b'{"keys": []}', b"x" * (1 << 20) + b"x"])
def test_keys_stay_in_use_while_the_endpoint_fails(broker: DirectBroker, endpoint: Endpoint, garbage: bytes) -> None:
    endpoint.serve(garbage)
    broker.pass_time(300_000)
    assert answer_to(broker, signed(claims(now_s(broker)))).error_code == ErrorCode.NONE
    assert len(endpoint.requests) > 1


def test_without_keys_tokens_are_refused_until_there_are_some(endpoint: Endpoint) -> None:
    endpoint.serve(b"not now", status=503)
    broker = DirectBroker(config(endpoint.url))
    assert broker.broker.accepting, "other mechanisms are served"
    answer = answer_to(broker, signed(claims(now_s(broker))))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    endpoint.serve(jwks(signing_key()))
    broker.pass_time(10_000)
    assert answer_to(broker, signed(claims(now_s(broker)))).error_code == ErrorCode.NONE


def test_listeners_open_after_the_first_attempt_to_get_the_keys(broker: DirectBroker) -> None:
    (cache,) = broker.broker._client_authentication.token_keys._urls
    assert broker.broker.accepting
    cache.attempted = False
    assert not broker.broker.accepting


def test_keys_are_fetched_by_jobs_that_take_no_thread_from_log_ins() -> None:
    jobs: list[Job] = []
    keys = TokenKeys(lambda: Now(0, 0), jobs.append)
    configs = broker_configs({"sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1:1/"})
    keys.add(token_settings(configs), lambda: None)
    for _ in range(3):
        keys.tick(Now(1000, 0))
    assert [job.kind for job in jobs] == [JobKind.DOWNLOAD]
    assert keys.next_deadline_ms() is None


class TestHttps:
    """The trust store is in the JAAS entry, as in Kafka."""

    JAAS = f"{PREFIX}sasl.jaas.config"

    @pytest.fixture
    def certificates(self, tmp_path: Path) -> Certificates:
        made = Certificates.new(tmp_path / "issuer")
        made.issue("issuer", "127.0.0.1")
        return made

    @pytest.fixture
    def endpoint(self, certificates: Certificates) -> Iterator[Endpoint]:
        with http_endpoint(certificates.folder / "issuer.pem") as made:
            made.serve(jwks(signing_key()))
            yield made

    def entry(self, certificates: Certificates) -> str:
        return f'{LOGIN} ssl.truststore.type=PEM ssl.truststore.location="{certificates.trusted}" scope=any;'

    def test_an_authority_of_the_trust_store_is_trusted(self, endpoint: Endpoint, certificates: Certificates) -> None:
        broker = DirectBroker(config(endpoint.url, **{self.JAAS: self.entry(certificates)}))
        assert answer_to(broker, signed(claims(now_s(broker)))).error_code == ErrorCode.NONE

    def test_no_other_is(self, endpoint: Endpoint, tmp_path: Path) -> None:
        other = Certificates.new(tmp_path / "other")
        for settings in ({}, {self.JAAS: f"{LOGIN};"}, {self.JAAS: self.entry(other)}):
            broker = DirectBroker(config(endpoint.url, **settings))
            assert answer_to(broker, signed(claims(now_s(broker)))).error_code != ErrorCode.NONE
        assert endpoint.requests == []

    def test_it_can_be_changed_at_run_time(self, endpoint: Endpoint, certificates: Certificates) -> None:
        broker = DirectBroker(config(endpoint.url))
        for entry, code in ((f'{LOGIN} ssl.truststore.location="/absent";', 42), (self.entry(certificates), 0)):
            changed = AlterableConfig(name=self.JAAS, config_operation=0, value=entry)
            resource = AlterConfigsResource(resource_type=4, resource_name="0", configs=(changed,))
            sent = broker.send(IncrementalAlterConfigsRequest(resources=(resource,)))
            broker.settle()
            assert broker.answer(sent).responses[0].error_code == code
        broker.pass_time(10_000)
        assert answer_to(broker, signed(claims(now_s(broker)))).error_code == ErrorCode.NONE

    def test_a_stored_entry_that_cannot_be_used_fails_the_fetch(
        self, endpoint: Endpoint, certificates: Certificates
    ) -> None:
        """Two valid changes at once may not be valid together."""
        broker = DirectBroker(config(endpoint.url, **{self.JAAS: self.entry(certificates)}))
        encrypted = broker.controller.cipher.encrypt(Password("garbage"), broker_id=BrokerId(0), key=self.JAAS)
        changed = BrokerConfigsChanged(BrokerId(0), (), ((self.JAAS, encrypted),))
        broker.controller.decide(Outcome(None, [changed]), broker.now())
        broker.controller.run(broker.now())
        broker.pass_time(600_000)
        answer = answer_to(broker, signed(claims(now_s(broker))))
        assert answer.error_code == ErrorCode.NONE, "by the keys of the last fetch"
        assert len(endpoint.requests) == 1

    def test_a_trust_store_that_cannot_be_read_is_an_error(self, endpoint: Endpoint) -> None:
        entry = f'{LOGIN} ssl.truststore.location="/absent";'
        with pytest.raises(ConfigError, match=r"ssl\.truststore\.location='/absent': .*No such file"):
            check_authentication(broker_configs(config(endpoint.url, **{self.JAAS: entry})))


class TestUnsecured:
    def test_only_if_asked_for_by_name(self, endpoint: Endpoint) -> None:
        for settings, code in (
            ({}, ErrorCode.SASL_AUTHENTICATION_FAILED),
            ({HANDLER: f"{PACKAGE}.OAuthBearerValidatorCallbackHandler"}, ErrorCode.SASL_AUTHENTICATION_FAILED),
            ({HANDLER: UNSECURED}, ErrorCode.NONE),
        ):
            broker = DirectBroker(config(endpoint.url, **settings))
            token = unsecured({"sub": "carol", "exp": now_s(broker) + 60, "iat": now_s(broker)})
            assert answer_to(broker, token).error_code == code

    def test_no_keys_are_fetched(self, endpoint: Endpoint) -> None:
        DirectBroker(config(endpoint.url, **{HANDLER: UNSECURED}))
        assert endpoint.requests == []

    def test_options(self) -> None:
        options = f'{LOGIN} unsecuredValidatorPrincipalClaimName="user" unsecuredValidatorRequiredScope="produce";'
        broker = DirectBroker(config("", **{HANDLER: UNSECURED, f"{PREFIX}sasl.jaas.config": options}))
        payload = {"user": "carol", "exp": now_s(broker) + 60}
        refused = answer_to(broker, unsecured(payload))
        assert refused.error_message == '{"status":"insufficient_scope","scope":"produce"}'
        connection = connect(broker)
        log_in(broker, connection, OAuthBearerClient(Password(unsecured({**payload, "scope": ["produce"]}))))
        assert connection.client.principal == Principal("User", "carol")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"sasl.oauthbearer.jwks.endpoint.url": ""},
            r"oauthbearer\.sasl\.oauthbearer\.jwks\.endpoint\.url: must be set",
        ),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x/"}, "must be an https:, http: or file: URL"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://user:hunter2@x/"}, "without user and password"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "keys.json"}, "must be an https:, http: or file: URL"),
        ({HANDLER: "os:getcwd"}, "must be org"),
        ({HANDLER: f"{PACKAGE}.Other"}, "must be module:name"),
        ({HANDLER: UNSECURED, f"{PREFIX}sasl.jaas.config": "hunter2"}, "must be one login module"),
        ({HANDLER: UNSECURED, f"{PREFIX}sasl.jaas.config": f"{LOGIN} unsecuredValidatorX=hunter2;"}, "unknown option"),
        ({"sasl.oauthbearer.sub.claim.name": ""}, "must not be empty"),
        ({"sasl.oauthbearer.clock.skew.seconds": "-1"}, "must be between"),
    ],
)
def test_an_invalid_configuration(changed: dict[str, str], reason: str) -> None:
    with pytest.raises((ConfigError, KafkaError), match=reason) as refused:
        DirectBroker(config("file:///keys.json", **changed))
    assert "hunter2" not in str(refused.value).replace("http://user:hunter2@x/", "")
