"""The authorizer follows Kafka's rules for any lists; a permission ends when its entry is removed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.config.table import broker_configs
from raylog.core.errors import ConfigError
from raylog.security import authorizer as module
from raylog.security.acl import CLUSTER, AclBinding, Operation, PatternType, Permission, Resource, ResourceType
from raylog.security.acl_index import AclIndex
from raylog.security.authorizer import Authorizer, Reason, configured
from raylog.security.principal import CLUSTER_PRINCIPAL, Client, Principal
from tests.security.acls import (
    HOSTS,
    NAMES,
    REAL_OPERATIONS,
    TYPES,
    USERS,
    about_one_right,
    binding,
    bindings,
    naive_decide,
)

ALICE, BOB = USERS
HERE = HOSTS[0]
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC = Resource.topic("a")


class Lists:
    """Access control lists that change."""

    def __init__(self, *entries: AclBinding, allow_if_no_acl: bool = False) -> None:
        self.index = AclIndex(entries)
        self.authorizer = Authorizer(lambda: self.index, super_users=[], allow_if_no_acl=allow_if_no_acl)

    def become(self, *entries: AclBinding) -> None:
        self.index = AclIndex(entries)

    def allow(self, principal: Principal, operation: Operation, resource: Resource = TOPIC, host: str = HERE) -> bool:
        return self.authorizer.decide(principal, host, operation, resource).allowed


class TestAgainstANaiveModel:
    @settings(max_examples=300)
    @given(st.lists(bindings, max_size=8), st.booleans())
    def test_one_resource(self, entries: list[AclBinding], allow_if_no_acl: bool) -> None:
        lists = Lists(*entries, allow_if_no_acl=allow_if_no_acl)
        for resource in (Resource(kind, name) for kind in TYPES for name in (*NAMES, "c")):
            for operation in REAL_OPERATIONS:
                for principal in USERS:
                    expected = naive_decide(
                        entries, principal, HERE, operation, resource, allow_if_no_acl=allow_if_no_acl
                    )
                    assert lists.allow(principal, operation, resource) == expected
                    assert lists.allow(principal, operation, resource) == expected, "it is remembered wrongly"

    @settings(max_examples=300)
    @given(st.lists(bindings, max_size=8) | st.lists(about_one_right, max_size=5), st.booleans())
    def test_any_resource_of_a_type(self, entries: list[AclBinding], allow_if_no_acl: bool) -> None:
        """There is such a resource exactly when one of those that the entries tell apart is one."""
        lists = Lists(*entries, allow_if_no_acl=allow_if_no_acl)
        names = [*NAMES, *(f"{name}-" for name in NAMES), "-"]
        for kind in TYPES:
            for operation in (WRITE, DESCRIBE):
                expected = any(
                    naive_decide(entries, ALICE, HERE, operation, Resource(kind, name), allow_if_no_acl=allow_if_no_acl)
                    for name in names
                )
                assert lists.authorizer.decide(ALICE, HERE, operation, kind).allowed == expected


class TestRules:
    def test_without_a_matching_entry_access_is_denied(self) -> None:
        lists = Lists(binding())
        assert lists.allow(ALICE, READ)
        assert not lists.allow(BOB, READ)
        assert not lists.allow(ALICE, WRITE)
        assert not lists.allow(ALICE, READ, Resource.topic("ab"))
        assert not lists.allow(ALICE, READ, Resource.group("a"))

    def test_a_deny_entry_takes_precedence_over_all_allow_entries(self) -> None:
        denial = binding("*", principal="User:*", host=HERE, permission=Permission.DENY)
        lists = Lists(binding(), binding(operation=Operation.ALL), denial)
        verdict = lists.authorizer.decide(ALICE, HERE, READ, TOPIC)
        assert (verdict.allowed, verdict.reason, verdict.entry) == (False, Reason.ENTRY, denial)
        assert lists.allow(ALICE, READ, host=HOSTS[1])
        assert lists.allow(ALICE, WRITE)

    @pytest.mark.parametrize(
        ("host", "peer"),
        [
            ("2001:db8:0:0:0:0:0:7", "2001:db8::7"),
            ("2001:DB8::7", "2001:db8::7"),
            ("2001:db8::7", "2001:db8::7"),
            ("0:0:0:0:0:ffff:10.0.0.1", "10.0.0.1"),
            ("ray", "ray"),
        ],
    )
    def test_a_host_matches_in_every_spelling_of_its_address(self, host: str, peer: str) -> None:
        """Java, and so Kafka, writes all groups of an IPv6 address."""
        denial = binding(host=host, permission=Permission.DENY)
        lists = Lists(binding(), denial)
        assert lists.authorizer.decide(ALICE, peer, READ, TOPIC).entry == denial
        assert lists.allow(ALICE, READ, host="2001:db8::8")
        allowing = Lists(binding(host=host))
        assert allowing.authorizer.decide(ALICE, peer, READ, ResourceType.TOPIC).allowed
        assert not allowing.authorizer.decide(ALICE, "2001:db8::8", READ, ResourceType.TOPIC).allowed

    @pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
    def test_some_allowed_operations_imply_describe_but_denied_ones_do_not(self, operation: Operation) -> None:
        assert Lists(binding(operation=operation)).allow(ALICE, DESCRIBE)
        denied = binding(operation=operation, permission=Permission.DENY)
        assert Lists(denied, binding(operation=DESCRIBE)).allow(ALICE, DESCRIBE)

    def test_prefixes(self) -> None:
        lists = Lists(binding("ab", pattern=PatternType.PREFIXED))
        allowed = [name for name in (*NAMES, "abcd") if lists.allow(ALICE, READ, Resource.topic(name))]
        assert allowed == ["ab", "abc", "abcd"]

    def test_a_resource_without_entries_follows_the_configuration(self) -> None:
        open_ones = Lists(allow_if_no_acl=True)
        assert open_ones.authorizer.decide(ALICE, HERE, READ, TOPIC) == (True, Reason.NO_ACL, None)
        open_ones.become(binding(principal="User:carol"))
        assert open_ones.authorizer.decide(ALICE, HERE, READ, TOPIC) == (False, Reason.NO_ENTRY, None)
        assert not Lists().allow(ALICE, READ)

    def test_super_users_and_the_cluster_are_always_allowed(self) -> None:
        denial = binding("*", principal="User:*", operation=Operation.ALL, permission=Permission.DENY)
        asked = Authorizer(lambda: AclIndex([denial]), super_users=[ALICE], allow_if_no_acl=False)
        for principal in (ALICE, CLUSTER_PRINCIPAL):
            assert asked.decide(principal, HERE, READ, TOPIC) == (True, Reason.SUPER_USER, None)
            assert asked.decide(principal, HERE, READ, ResourceType.TOPIC).allowed
        assert not asked.decide(BOB, HERE, READ, TOPIC).allowed

    def test_all_allowed_operations_as_bits(self) -> None:
        lists = Lists(binding(operation=WRITE), binding(operation=Operation.ALTER_CONFIGS))
        expected = {WRITE, DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS}
        assert lists.authorizer.operations(Client(ALICE, HERE), TOPIC) == sum(1 << each for each in expected)
        assert lists.authorizer.operations(Client(BOB, HERE), CLUSTER) == 0


class TestCachedVerdicts:
    def test_a_change_of_the_lists_invalidates_them(self) -> None:
        lists = Lists(binding())
        assert lists.allow(ALICE, READ)
        lists.become()
        assert not lists.allow(ALICE, READ)
        lists.become(binding("b", operation=WRITE))
        assert lists.authorizer.decide(ALICE, HERE, WRITE, ResourceType.TOPIC).allowed
        lists.become()
        assert not lists.authorizer.decide(ALICE, HERE, WRITE, ResourceType.TOPIC).allowed

    def test_their_number_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "VERDICTS_MAX", 5)
        lists = Lists(binding())
        for number in range(100):
            assert not lists.allow(ALICE, READ, Resource.topic(f"other-{number}"))
            assert lists.allow(ALICE, READ)
            assert len(lists.authorizer._verdicts) <= 5


class TestConfiguration:
    def test_there_is_no_authorizer_by_default(self) -> None:
        assert configured(broker_configs({}), lambda: AclIndex([])) is None

    def test_super_users_and_the_default(self) -> None:
        texts = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:alice; User:CN=b,OU=x"}
        made = configured(broker_configs(texts), lambda: AclIndex([]))
        assert made is not None
        for principal, allowed in ((ALICE, True), (Principal("User", "CN=b,OU=x"), True), (BOB, False)):
            assert made.decide(principal, HERE, READ, TOPIC).allowed == allowed
        texts["allow.everyone.if.no.acl.found"] = "true"
        made = configured(broker_configs(texts), lambda: AclIndex([]))
        assert made is not None
        assert made.decide(BOB, HERE, READ, TOPIC).allowed

    @pytest.mark.parametrize(
        ("key", "value"),
        [("authorizer.class.name", "kafka.security.auth.SimpleAclAuthorizer"), ("super.users", "root")],
    )
    def test_an_unsupported_authorizer_is_refused_by_name(self, key: str, value: str) -> None:
        with pytest.raises(ConfigError, match=rf"{key}='{value}': must be"):
            broker_configs({key: value})
