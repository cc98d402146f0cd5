"""raylog's admin client and who may do what: access control lists, users, quotas, delegation tokens, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raylog.client.admin.quotas import ANY_NAME
from raylog.client.admin.topics import NewTopic
from raylog.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from raylog.client.errors import AuthorizationError
from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from raylog.security.principal import Principal
from raylog.security.sasl.scram import ScramMechanism
from tests.client.admin_faces import BlockingFace
from tests.client.served import Target
from tests.client.test_admin import faces, failed
from tests.support.cluster_thread import RunningCluster, cluster_thread

MODULES = "org.apache.kafka.common.security"
SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
As = Callable[..., Any]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{MODULES}.plain.PlainLoginModule required user_admin="a" user_bob="b";'
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:admin",
        "delegation.token.secret.key": "secret-of-this-test",
    }
    with cluster_thread(config, tmp_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture
def make_as(guarded: RunningCluster, request: pytest.FixtureRequest) -> As:
    """Makes an admin client that logs in as a user."""

    def made(face: Any, user: str, password: str, mechanism: str = "PLAIN", options: str = "", **settings: Any) -> Any:
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        login = f'{MODULES}.{module}LoginModule required username="{user}" password="{password}"{options};'
        endpoint = guarded.broker.endpoints["SASL_PLAINTEXT"]
        admin = face(
            bootstrap_servers=f"{endpoint.host}:{endpoint.port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_jaas_config=login,
            **settings,
        )
        request.addfinalizer(admin.stop)
        return admin

    return made


def binding(name: str, operation: Operation, permission: Permission = Permission.ALLOW) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, PatternType.LITERAL, "User:bob", "*", operation, permission)


@faces
def test_access_control_lists(make_as: As, face: Any) -> None:
    admin, bob = make_as(face, "admin", "a"), make_as(face, "bob", "b")
    name = f"acl-{face.__name__}"
    admin.create_topics(name)
    error = failed(lambda: bob.delete_topics(name))
    assert (type(error), error.code) == (AuthorizationError, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert type(failed(lambda: bob.describe_acls())) is AuthorizationError
    assert type(failed(lambda: bob.list_offsets({(name, 0): -1}))) is AuthorizationError
    bindings = [binding(name, Operation.DELETE), binding(name, Operation.READ)]
    assert admin.create_acls(bindings) == dict.fromkeys(bindings)
    assert admin.create_acls(bindings[0]) == {bindings[0]: None}
    wanted = AclFilter(ResourceType.TOPIC, name, PatternType.MATCH)
    assert set(admin.describe_acls(wanted)) == set(bindings) <= set(admin.describe_acls())
    assert bob.delete_topics([name]) == {name: None}
    assert admin.delete_acls(AclFilter(operation=Operation.DELETE)) == {
        AclFilter(operation=Operation.DELETE): bindings[:1]
    }
    none = AclFilter(principal="User:none")
    assert admin.delete_acls([wanted, none]) == {wanted: bindings[1:], none: []}
    bad = AclBinding(
        ResourceType.CLUSTER, "mine", PatternType.LITERAL, "User:bob", "*", Operation.ALTER, Permission.ALLOW
    )
    error = failed(lambda: admin.create_acls([bad, bindings[0]]))
    assert (list(error.errors), list(error.results)) == ([bad], [bindings[0]])
    admin.delete_acls(AclFilter())


@faces
def test_users(make_as: As, face: Any) -> None:
    admin, user = make_as(face, "admin", "a"), f"user-{face.__name__}"
    new = UserScramCredentialUpsertion(user, "first", SHA_256)
    assert admin.alter_user_scram_credentials([new, new._replace(mechanism=SHA_512, iterations=8192)]) == {user: None}
    assert admin.describe_user_scram_credentials(user) == {user: {SHA_256: 4096, SHA_512: 8192}}
    assert user in admin.describe_user_scram_credentials()
    as_user = make_as(face, user, "first", "SCRAM-SHA-256")
    assert as_user.list_topics() == []
    admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, SHA_512)])
    assert admin.describe_user_scram_credentials([user]) == {user: {SHA_256: 4096}}
    error = failed(lambda: admin.describe_user_scram_credentials([user, "none"]))
    assert (error.code, list(error.results)) == (ErrorCode.RESOURCE_NOT_FOUND, [user])
    wrong = UserScramCredentialDeletion("none", SHA_512)
    error = failed(lambda: admin.alter_user_scram_credentials([wrong, new]))
    assert (list(error.errors), list(error.results)) == (["none"], [user])
    with pytest.raises(KafkaError, match="must be at most 16384"):
        admin.alter_user_scram_credentials([new._replace(iterations=1 << 40)])


@faces
def test_quotas(make_as: As, face: Any) -> None:
    admin, user = make_as(face, "admin", "a"), f"quota-{face.__name__}"
    alice, everyone = (("user", user),), (("client-id", None), ("user", user))
    admin.alter_client_quotas({alice: {"producer_byte_rate": 1000}}, validate_only=True)
    assert admin.describe_client_quotas({"user": user}) == {}
    limits = {"producer_byte_rate": 1000, "request_percentage": 50.5}
    admin.alter_client_quotas({alice: limits, everyone: {"consumer_byte_rate": 5}})
    assert admin.describe_client_quotas({"user": user}) == {
        alice: limits,
        everyone: {"consumer_byte_rate": 5},
    }
    assert list(admin.describe_client_quotas({"user": user}, strict=True)) == [alice]
    assert everyone in admin.describe_client_quotas({"user": ANY_NAME, "client-id": None})
    assert alice in admin.describe_client_quotas()
    admin.alter_client_quotas({alice: {"producer_byte_rate": None}})
    assert admin.describe_client_quotas({"user": user}, strict=True) == {alice: {"request_percentage": 50.5}}
    wrong = (("colour", "red"),)
    error = failed(lambda: admin.alter_client_quotas({wrong: {"x": 1}, alice: {"request_percentage": None}}))
    assert (list(error.errors), list(error.results)) == ([wrong], [alice])


@faces
def test_delegation_tokens(make_as: As, face: Any) -> None:
    bob = make_as(face, "bob", "b")
    token = bob.create_delegation_token(renewers=[Principal("User", "admin")], max_lifetime_ms=60_000)
    assert token.owner == token.requester == Principal("User", "bob")
    assert token.expiry_timestamp_ms <= token.max_timestamp_ms == token.issue_timestamp_ms + 60_000
    assert token in bob.describe_delegation_tokens([token.owner])
    assert token in bob.describe_delegation_tokens()
    by_token = make_as(face, token.token_id, token.hmac.reveal(), "SCRAM-SHA-256", ' tokenauth="true"')
    assert by_token.list_topics() == []
    assert token.hmac.reveal() not in repr(token)
    assert make_as(face, "admin", "a").renew_delegation_token(token.hmac) <= token.max_timestamp_ms
    bob.expire_delegation_token(token.hmac.reveal())
    assert token.token_id not in {each.token_id for each in bob.describe_delegation_tokens()}
    assert failed(lambda: bob.renew_delegation_token(token.hmac)).code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with pytest.raises(KafkaError, match="must be base64"):
        bob.renew_delegation_token("?")


@faces
def test_a_plain_listener_that_is_not_the_first(
    guarded: RunningCluster, request: pytest.FixtureRequest, face: Any
) -> None:
    """The broker's Unix socket belongs to its first listener, which wants a log-in."""
    endpoint = guarded.broker.endpoints["PLAINTEXT"]
    admin = face(bootstrap_servers=f"{endpoint.host}:{endpoint.port}")
    request.addfinalizer(admin.stop)
    assert admin.create_topics(f"plain-{face.__name__}")


@faces
def test_a_wrong_password_is_an_error_at_once(make_as: As, face: Any) -> None:
    admin = make_as(face, "admin", "wrong")
    error = failed(admin.list_topics)
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failed(lambda: admin.create_topics(["a", NewTopic("b")])).code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_what_is_disabled(target: Target, request: pytest.FixtureRequest) -> None:
    admin = BlockingFace(**target.settings())
    request.addfinalizer(admin.stop)
    assert failed(admin.describe_acls).code is ErrorCode.SECURITY_DISABLED
    code = failed(admin.create_delegation_token).code
    assert code in (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
