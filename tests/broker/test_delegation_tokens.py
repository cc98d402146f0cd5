"""Delegation tokens of a broker: who may create, renew, expire and see them, and who logs in by them."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest

from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.controller import acls, controller, delegation_tokens
from raylog.core.errors import ErrorCode
from raylog.core.outcome import Outcome
from raylog.core.password import Password
from raylog.metadata.records import DelegationTokenCreated
from raylog.protocol import registry
from raylog.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from raylog.protocol.messages.envelope import EnvelopeRequest
from raylog.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from raylog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from raylog.protocol.schema import Message
from raylog.security.acl import CLUSTER, AclBinding, Operation, PatternType, Permission, Resource
from raylog.security.delegation_tokens import TokenKey
from raylog.security.principal import ANONYMOUS, Principal, decode_principal
from raylog.security.sasl.scram import ScramClient, ScramMechanism
from raylog.transport.accepted_connection import AcceptedConnection
from tests.broker.test_quotas import limit, spend
from tests.broker.test_sasl import alter as alter_users
from tests.broker.test_sasl import log_in, scram, serves, upsertion
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember
from tests.support.exchanges import log_in as become

SECRET = "a-secret-of-this-test"
CHECK_MS = 120_000
CONFIG: dict[str, Any] = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
    "delegation.token.secret.key": SECRET,
    "delegation.token.expiry.check.interval.ms": CHECK_MS,
}
WITH_AUTHORIZER = {**CONFIG, "authorizer.class.name": STANDARD_AUTHORIZER}
ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
DAY = 86_400_000
LOG = "/controller/__cluster_metadata-0"
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.fixture
def broker() -> DirectBroker:
    return DirectBroker(CONFIG)


def connected(member: DirectMember, principal: Principal | None = ALICE) -> AcceptedConnection:
    """A connection as this principal; None: not yet authenticated."""
    connection = member.connect(listener_name="SASL_PLAINTEXT")
    if principal is not None:
        become(connection, principal)
    return connection


def ask(member: DirectMember, request: Message, connection: AcceptedConnection, version: int | None = None) -> Any:
    sent = member.send(request, version=version, connection=connection)
    member.cluster.settle()
    return member.answer(sent, connection=connection)


def create(member: DirectMember, connection: AcceptedConnection, *renewers: Principal, **given: Any) -> Any:
    owner = given.pop("owner", None)
    version = given.pop("version", None)
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else owner.type,
        owner_principal_name=None if owner is None else owner.name,
        renewers=tuple(CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers),
        **{"max_lifetime_ms": -1, **given},
    )
    return ask(member, request, connection, version)


def renew(member: DirectMember, connection: AcceptedConnection, hmac: bytes, period_ms: int = -1) -> Any:
    return ask(member, RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), connection)


def expire(member: DirectMember, connection: AcceptedConnection, hmac: bytes, period_ms: int = -1) -> Any:
    return ask(member, ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), connection)


def describe(member: DirectMember, connection: AcceptedConnection, *owners: Principal, version: int = 3) -> Any:
    """Without owners: all tokens."""
    asked = tuple(DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name) for each in owners)
    return ask(member, DescribeDelegationTokenRequest(owners=asked or None), connection, version)


def ids(answer: Any) -> list[str]:
    assert answer.error_code == ErrorCode.NONE
    return [token.token_id for token in answer.tokens]


def by_token(created: Any, mechanism: ScramMechanism = ScramMechanism.SHA_256) -> ScramClient:
    password = Password(b64encode(bytes(created.hmac)).decode())
    return ScramClient(mechanism, created.token_id, password, nonce=b"of the client", is_token=True)


def log_in_by(member: DirectBroker, created: Any) -> tuple[AcceptedConnection, Any]:
    connection = connected(member, None)
    return connection, log_in(member, connection, by_token(created))


class TestCreateAndDescribe:
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_a_token(self, broker: DirectBroker, version: int) -> None:
        alice = connected(broker)
        created = create(broker, alice, BOB, CAROL, version=version)
        now_ms = broker.now().wall_ms
        assert (created.error_code, created.principal_type, created.principal_name) == (0, "User", "alice")
        assert created.issue_timestamp_ms == now_ms
        assert created.expiry_timestamp_ms == now_ms + DAY
        assert created.max_timestamp_ms == now_ms + 7 * DAY
        assert bytes(created.hmac) == TokenKey(Password(SECRET)).hmac_of(created.token_id)
        (token,) = describe(broker, alice, version=version).tokens
        assert (token.principal_type, token.principal_name) == ("User", "alice")
        assert (token.token_id, bytes(token.hmac)) == (created.token_id, bytes(created.hmac))
        assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (
            created.issue_timestamp_ms,
            created.expiry_timestamp_ms,
            created.max_timestamp_ms,
        )
        assert [(each.principal_type, each.principal_name) for each in token.renewers] == [BOB, CAROL]
        if version >= 3:
            requesters = {each.token_requester_principal_name for each in (created, token)}
            assert requesters == {"alice"}

    def test_for_another_owner(self, broker: DirectBroker) -> None:
        created = create(broker, connected(broker), owner=BOB)
        assert (created.principal_name, created.token_requester_principal_name) == ("bob", "alice")
        assert create(broker, connected(broker), owner=Principal("User", "")).principal_name == "alice"

    def test_an_owner_of_another_type_is_refused(self, broker: DirectBroker) -> None:
        for principal in (Principal("Cluster", "raylog"), Principal("Group", "g")):
            assert create(broker, connected(broker), owner=principal).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
            assert create(broker, connected(broker), principal).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        assert not broker.controller.image.delegation_tokens

    def test_a_limit_is_told(self, broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delegation_tokens, "TOKENS_PER_OWNER_MAX", 1)
        assert create(broker, connected(broker)).error_code == ErrorCode.NONE
        assert create(broker, connected(broker)).error_code == ErrorCode.POLICY_VIOLATION
        assert create(broker, connected(broker, BOB)).error_code == ErrorCode.NONE

    def test_many_tokens_are_described_in_steps(self, broker: DirectBroker) -> None:
        alice = connected(broker)
        active = broker.controller
        for number in range(2500):
            record = DelegationTokenCreated(f"t{number}", ("User", f"u{number % 5}"), ALICE, (), 0, 1 << 60, 1 << 60)
            active.decide(Outcome(None, [record]), broker.now())
        active.run(broker.now())
        broker.settle()
        assert ids(describe(broker, alice)) == [f"t{number}" for number in range(2500)]
        assert ids(describe(broker, alice, Principal("User", "u3"))) == [f"t{number}" for number in range(3, 2500, 5)]
        assert ids(describe(broker, alice, Principal("User", "nobody"))) == []

    def test_an_empty_list_of_owners_finds_nothing(self, broker: DirectBroker) -> None:
        alice = connected(broker)
        create(broker, alice)
        assert ids(ask(broker, DescribeDelegationTokenRequest(owners=()), alice)) == []


class TestPermissions:
    @pytest.fixture
    def broker(self) -> DirectBroker:
        return DirectBroker(WITH_AUTHORIZER)

    def allow(self, broker: DirectBroker, operation: Operation, resource: Resource, to: Principal = ALICE) -> None:
        entry = AclBinding(resource.type, resource.name, PatternType.LITERAL, str(to), "*", operation, Permission.ALLOW)
        broker.controller.decide(acls.add(broker.controller.image, [entry], new_id=broker.cluster.new_id), broker.now())
        broker.controller.run(broker.now())
        broker.settle()

    def test_everybody_may_have_tokens_and_those_of_others_take_a_right(self, broker: DirectBroker) -> None:
        alice = connected(broker)
        assert create(broker, alice).error_code == ErrorCode.NONE
        refused = create(broker, alice, owner=BOB)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.token_id, bytes(refused.hmac), refused.expiry_timestamp_ms) == ("", b"", -1)
        self.allow(broker, Operation.CREATE_TOKENS, Resource.user(BOB))
        assert create(broker, alice, owner=BOB).error_code == ErrorCode.NONE
        assert create(broker, alice, owner=CAROL).error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED

    def test_tokens_are_seen_by_owner_requester_and_renewers(self, broker: DirectBroker) -> None:
        self.allow(broker, Operation.CREATE_TOKENS, Resource.user(BOB))
        token_id = create(broker, connected(broker), CAROL, owner=BOB).token_id
        for principal in (ALICE, BOB, CAROL):
            connection = connected(broker, principal)
            assert ids(describe(broker, connection)) == [token_id]
            assert [ids(describe(broker, connection, each)) for each in (ALICE, BOB, CAROL)] == [[token_id]] * 3
        assert ids(describe(broker, connected(broker, Principal("User", "dave")))) == []

    def test_tokens_that_are_left_out_are_no_denials_in_the_log(
        self, broker: DirectBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        create(broker, connected(broker))
        with caplog.at_level("INFO", "raylog.authorizer"):
            broker.pass_time(1000)
            assert ids(describe(broker, connected(broker, BOB))) == []
        assert [each for each in caplog.records if each.name == "raylog.authorizer"] == []

    @pytest.mark.parametrize("by_owner", [True, False])
    def test_tokens_of_others_are_seen_with_a_right(self, broker: DirectBroker, by_owner: bool) -> None:
        mine, other = create(broker, connected(broker, BOB)).token_id, create(broker, connected(broker, CAROL)).token_id
        alice = connected(broker)
        assert ids(describe(broker, alice)) == []
        if by_owner:
            self.allow(broker, Operation.DESCRIBE_TOKENS, Resource.user(BOB))
        else:
            self.allow(broker, Operation.DESCRIBE, Resource.delegation_token(mine))
        assert ids(describe(broker, alice)) == [mine]
        assert ids(describe(broker, alice, BOB, CAROL)) == [mine]
        assert ids(describe(broker, alice, CAROL)) == []
        assert ids(describe(broker, connected(broker, CAROL))) == [other]

    def test_a_token_gives_its_session_the_rights_of_the_owner(self, broker: DirectBroker) -> None:
        self.allow(broker, Operation.DESCRIBE_CONFIGS, CLUSTER, to=BOB)
        wanted = DescribeConfigsRequest(resources=(DescribeConfigsResource(resource_type=4, resource_name="0"),))
        codes = {}
        for principal in (ALICE, BOB):
            connection, _ = log_in_by(broker, create(broker, connected(broker, principal)))
            (found,) = ask(broker, wanted, connection).results
            codes[principal] = found.error_code
            assert SECRET not in repr(found)
        assert codes == {ALICE: ErrorCode.CLUSTER_AUTHORIZATION_FAILED, BOB: ErrorCode.NONE}


class TestNotAllowed:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: on connections that do not authenticate, and after a login by a token."""

    def refused_everywhere(self, broker: DirectBroker, connection: AcceptedConnection, hmac: bytes) -> None:
        before = dict(broker.controller.image.delegation_tokens)
        answers = (
            create(broker, connection),
            renew(broker, connection, hmac),
            expire(broker, connection, hmac),
            describe(broker, connection),
        )
        assert [answer.error_code for answer in answers] == [NOT_ALLOWED] * 4
        assert not answers[3].tokens
        assert broker.controller.image.delegation_tokens == before

    def test_on_a_plaintext_listener(self, broker: DirectBroker) -> None:
        created = create(broker, connected(broker))
        plain = broker.connect(listener_name="PLAINTEXT")
        assert plain.client.principal == ANONYMOUS
        self.refused_everywhere(broker, plain, bytes(created.hmac))

    def test_after_a_login_by_a_token(self, broker: DirectBroker) -> None:
        created = create(broker, connected(broker))
        connection, answer = log_in_by(broker, created)
        assert answer.error_code == ErrorCode.NONE
        assert connection.client.token_authenticated
        self.refused_everywhere(broker, connection, bytes(created.hmac))

    @pytest.mark.parametrize("version", [2, 3])
    def test_the_controller_does_not_rely_on_the_broker(self, broker: DirectBroker, version: int) -> None:
        """It finds in the Envelope how the client has logged in."""
        envelopes: list[EnvelopeRequest] = []
        handlers = broker.controller.handlers
        served = handlers[registry.ENVELOPE]

        def listen(node: Any, exchange: Any, request: EnvelopeRequest) -> Any:
            envelopes.append(request)
            return served(node, exchange, request)

        created = create(broker, connected(broker))
        connection, _ = log_in_by(broker, created)
        unguarded = broker.broker.handlers[registry.CREATE_TOPICS]
        requests: list[Message] = [
            CreateDelegationTokenRequest(max_lifetime_ms=-1),
            RenewDelegationTokenRequest(hmac=bytes(created.hmac), renew_period_ms=-1),
            ExpireDelegationTokenRequest(hmac=bytes(created.hmac), expiry_time_period_ms=-1),
        ]
        broker.broker.handlers = {**broker.broker.handlers, **{each.api.key: unguarded for each in requests}}
        broker.controller.handlers = {**handlers, registry.ENVELOPE: listen}
        codes = [ask(broker, each, connection, min(version, each.api.highest)).error_code for each in requests]
        assert codes == [NOT_ALLOWED] * 3
        assert [decode_principal(each.request_principal or b"") for each in envelopes] == [(ALICE, True)] * 3


class TestRenewAndExpire:
    def test_the_owner_and_a_renewer(self, broker: DirectBroker) -> None:
        created = create(broker, connected(broker), BOB)
        hmac = bytes(created.hmac)
        broker.pass_time(5000)
        renewed = renew(broker, connected(broker, BOB), hmac)
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, broker.now().wall_ms + DAY)
        ended = expire(broker, connected(broker), hmac, 1000)
        assert (ended.error_code, ended.expiry_timestamp_ms) == (0, broker.now().wall_ms + 1000)
        (token,) = describe(broker, connected(broker)).tokens
        assert token.expiry_timestamp == ended.expiry_timestamp_ms
        gone = expire(broker, connected(broker, BOB), hmac)
        assert (gone.error_code, gone.expiry_timestamp_ms) == (0, broker.now().wall_ms)
        assert ids(describe(broker, connected(broker))) == []

    def test_errors(self, broker: DirectBroker) -> None:
        hmac = bytes(create(broker, connected(broker)).hmac)
        for command in (renew, expire):
            stranger = command(broker, connected(broker, CAROL), hmac)
            assert (stranger.error_code, stranger.expiry_timestamp_ms) == (
                ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
                -1,
            )
            for wrong in (b"", hmac[1:], b"x" * 64, b"x" * 100_000):
                assert command(broker, connected(broker), wrong).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        expire(broker, connected(broker), hmac, 0)
        assert renew(broker, connected(broker), hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert expire(broker, connected(broker), hmac, 1).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


class TestLogin:
    @pytest.mark.parametrize("mechanism", list(ScramMechanism))
    def test_as_the_owner_until_the_token_expires(self, broker: DirectBroker, mechanism: ScramMechanism) -> None:
        created = create(broker, connected(broker), owner=BOB, max_lifetime_ms=60_000)
        broker.pass_time(1000)
        connection = connected(broker, None)
        answer = log_in(broker, connection, by_token(created, mechanism))
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 59_000)
        assert (connection.client.principal, connection.client.token_authenticated) == (BOB, True)
        broker.pass_time(58_999)
        assert serves(broker, connection)
        broker.pass_time(1)
        assert not serves(broker, connection)
        assert "session had expired" in (connection.close_reason or "")

    def test_a_renewed_token_prolongs_the_session(self, broker: DirectBroker) -> None:
        alice = connected(broker)
        created = create(broker, alice)
        expire(broker, alice, bytes(created.hmac), 60_000)
        connection, answer = log_in_by(broker, created)
        assert answer.session_lifetime_ms == 60_000
        broker.pass_time(50_000)
        renew(broker, alice, bytes(created.hmac), 30_000)
        answer = log_in(broker, connection, by_token(created))
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 30_000)
        broker.pass_time(29_000)
        assert serves(broker, connection)
        broker.pass_time(1000)
        assert log_in(broker, connection, by_token(created)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    def test_expired_and_removed_tokens_are_refused_as_unknown_ones(self, broker: DirectBroker) -> None:
        alice = connected(broker)
        expired, removed = create(broker, alice), create(broker, alice)
        unknown = replace(expired, token_id="x" * 22)
        assert log_in_by(broker, expired)[1].error_code == ErrorCode.NONE
        expire(broker, alice, bytes(expired.hmac), 0)
        expire(broker, alice, bytes(removed.hmac))
        assert expired.token_id in broker.broker.image.delegation_tokens
        refused = [log_in_by(broker, each)[1] for each in (expired, removed, unknown)]
        assert {answer.error_code for answer in refused} == {ErrorCode.SASL_AUTHENTICATION_FAILED}
        assert len({answer.error_message for answer in refused}) == 1

    def test_a_user_with_the_name_of_a_token_and_a_token_are_not_confused(self, broker: DirectBroker) -> None:
        created = create(broker, connected(broker))
        password = b64encode(bytes(created.hmac)).decode()
        refused = log_in(broker, connected(broker, None), scram(created.token_id, password))
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        alter_users(broker, upsertion(created.token_id, "pencil"))
        connection = connected(broker, None)
        assert log_in(broker, connection, scram(created.token_id, "pencil")).error_code == ErrorCode.NONE
        assert not connection.client.token_authenticated
        assert log_in_by(broker, created)[0].client.principal == ALICE

    def test_another_key_makes_all_tokens_invalid(self, broker: DirectBroker) -> None:
        created = create(broker, connected(broker))
        broker.cluster.config["delegation.token.secret.key"] = "another"
        broker.restart()
        assert log_in_by(broker, created)[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        found = renew(broker, connected(broker), bytes(created.hmac))
        assert found.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class TestDisabled:
    @pytest.mark.parametrize("config", [{}, {"delegation.token.secret.key": ""}])
    def test_without_a_key(self, config: dict[str, str]) -> None:
        listeners = {"listeners": CONFIG["listeners"]}
        broker = DirectBroker({**listeners, **config})
        alice = connected(broker)
        answers = (
            create(broker, alice),
            renew(broker, alice, b"x" * 64),
            expire(broker, alice, b"x" * 64),
            describe(broker, alice),
        )
        assert [answer.error_code for answer in answers] == [ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED] * 4

    def test_tokens_of_before_are_of_no_use_and_still_removed(self, broker: DirectBroker) -> None:
        created = create(broker, connected(broker), max_lifetime_ms=1000)
        del broker.cluster.config["delegation.token.secret.key"]
        broker.restart()
        assert log_in_by(broker, created)[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        broker.pass_time(CHECK_MS)
        assert not broker.controller.image.delegation_tokens


class TestExpiredTokens:
    def test_the_controller_removes_them(self, broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(controller, "TOKEN_REMOVALS_MAX", 2)
        for _ in range(5):
            create(broker, connected(broker), max_lifetime_ms=60_000)
        kept = create(broker, connected(broker)).token_id
        broker.pass_time(60_000)
        assert len(ids(describe(broker, connected(broker)))) == 6, "expired, and not yet removed"
        broker.pass_time(CHECK_MS)
        assert ids(describe(broker, connected(broker))) == [kept]
        assert list(broker.controller.image.delegation_tokens) == [kept]

    def test_the_interval_is_configured(self) -> None:
        broker = DirectBroker({**CONFIG, "delegation.token.expiry.check.interval.ms": 1000})
        create(broker, connected(broker), max_lifetime_ms=1500)
        broker.pass_time(1400)
        assert broker.controller.image.delegation_tokens
        broker.pass_time(1000)
        assert not broker.controller.image.delegation_tokens

    def test_a_full_disk_only_delays_it(self, broker: DirectBroker) -> None:
        create(broker, connected(broker), max_lifetime_ms=1)
        broker.controller_disk.capacity_bytes = 0
        broker.pass_time(CHECK_MS)
        assert broker.controller.image.delegation_tokens
        broker.controller_disk.capacity_bytes = None
        broker.pass_time(CHECK_MS)
        assert not broker.controller.image.delegation_tokens


def test_lifetimes_are_configured() -> None:
    times = {"delegation.token.max.lifetime.ms": 5000, "delegation.token.expiry.time.ms": 2000}
    broker = DirectBroker({**CONFIG, **times})
    created = create(broker, connected(broker))
    now_ms = broker.now().wall_ms
    assert (created.expiry_timestamp_ms, created.max_timestamp_ms) == (now_ms + 2000, now_ms + 5000)
    broker.pass_time(1000)
    assert renew(broker, connected(broker), bytes(created.hmac)).expiry_timestamp_ms == now_ms + 3000


def test_tokens_survive_a_restart_and_the_log_contains_no_secret(broker: DirectBroker) -> None:
    created = create(broker, connected(broker), BOB)
    broker.restart(clean=False)
    assert ids(describe(broker, connected(broker))) == [created.token_id]
    assert log_in_by(broker, created)[1].error_code == ErrorCode.NONE
    disk = broker.controller_disk
    stored = b"".join(disk.read_file(f"{LOG}/{name}") for name in disk.listdir(LOG))
    assert created.token_id.encode() in stored
    assert bytes(created.hmac) not in stored
    assert SECRET.encode() not in stored


def test_a_token_is_valid_at_every_broker() -> None:
    cluster = DirectCluster(2, CONFIG)
    first, second = cluster.brokers
    created = create(first, connected(first))
    cluster.settle()
    connection = connected(second, None)
    assert log_in(second, connection, by_token(created)).error_code == ErrorCode.NONE  # type: ignore[arg-type]
    assert connection.client.principal == ALICE
    assert renew(second, connected(second), bytes(created.hmac)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [1, 2])
def test_the_client_learns_for_how_long_it_is_throttled(broker: DirectBroker, version: int) -> None:
    """The throttle time is the last field of the responses that the controller has encoded."""
    created = create(broker, connected(broker))
    limit(broker, {"user": "alice"}, request_percentage=0.0001)
    spend(broker, 100)
    request = RenewDelegationTokenRequest(hmac=bytes(created.hmac), renew_period_ms=60_000)
    answer = ask(broker, request, connected(broker), version)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (0, broker.now().wall_ms + 60_000)
    assert answer.throttle_time_ms > 0
