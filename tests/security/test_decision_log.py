"""Denials are logged with their reason, permissions at DEBUG, and no client can flood the log or forge a line of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from raylog.core.logs import EventFormatter
from raylog.security import decision_log
from raylog.security.acl import AclBinding, Operation, PatternType, Permission, Resource, ResourceType
from raylog.security.acl_index import AclIndex
from raylog.security.authorization import Authorization
from raylog.security.authorizer import Authorizer
from raylog.security.principal import Client, Principal
from tests.security.acls import binding

READ, WRITE = Operation.READ, Operation.WRITE
ALICE, BOB, ROOT = (Client(Principal("User", name), "10.0.0.1") for name in ("alice", "bob", "root"))


class Request:
    def __init__(self, client: Client) -> None:
        self.client = client


class Lines(logging.Handler):
    """What is logged, as lines without the time."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(EventFormatter().format(record).partition(" ")[2])

    def taken(self) -> list[str]:
        taken, self.lines = self.lines, []
        return taken


@pytest.fixture
def logged() -> Iterator[Lines]:
    handler, level = Lines(), decision_log.log.level
    decision_log.log.addHandler(handler)
    decision_log.log.setLevel(logging.INFO)
    yield handler
    decision_log.log.setLevel(level)
    decision_log.log.removeHandler(handler)


def authorization(*entries: AclBinding, allow_if_no_acl: bool = False) -> Authorization:
    index = AclIndex(entries)
    return Authorization(Authorizer(lambda: index, super_users=[ROOT.principal], allow_if_no_acl=allow_if_no_acl))


def asked(made: Authorization, client: Client, operation: Operation = READ, topic: str = "a") -> bool:
    return made.may(Request(client), operation, Resource.topic(topic))


class TestWhatIsLogged:
    def test_every_denial_with_its_reason_whether_cached_or_not(self, logged: Lines) -> None:
        made = authorization(binding("a", permission=Permission.DENY), binding("b", principal="User:bob"))
        denied = "INFO raylog.authorizer operation denied principal=User:alice host=10.0.0.1"
        denial = "DENY User:alice from * to READ TOPIC:LITERAL:a"
        for _ in range(2):
            assert not asked(made, ALICE)
            assert not asked(made, ALICE, WRITE, "b")
            assert not asked(made, ALICE, READ, "c")
            assert logged.taken() == [
                f'{denied} operation=READ resource=TOPIC:a reason="an entry matches" entry="{denial}"',
                f'{denied} operation=WRITE resource=TOPIC:b reason="no entry allows the operation"',
                f'{denied} operation=READ resource=TOPIC:c reason="no entry matches the resource"',
            ]

    def test_permissions_only_at_debug(self, logged: Lines) -> None:
        made = authorization(binding("a", pattern=PatternType.PREFIXED), allow_if_no_acl=True)
        allowed = "DEBUG raylog.authorizer operation allowed principal"
        on = "host=10.0.0.1 operation=READ resource=TOPIC"
        entry = "ALLOW User:alice from * to READ TOPIC:PREFIXED:a"

        def ask() -> None:
            assert asked(made, ALICE)
            assert asked(made, ROOT)
            assert asked(made, BOB, READ, "other")

        ask()
        assert logged.taken() == []
        decision_log.log.setLevel(logging.DEBUG)
        made.decisions.begin_period()
        for _ in range(2):
            ask()
            assert logged.taken() == [
                f'{allowed}=User:alice {on}:a reason="an entry matches" entry="{entry}"',
                f'{allowed}=User:root {on}:a reason="the principal is a super user"',
                f'{allowed}=User:bob {on}:other reason="no entry matches the resource"',
            ]
        assert made.may_with_any(Request(ALICE), READ, ResourceType.TOPIC)
        assert "resource=TOPIC:any" in logged.taken()[0]

    def test_denials_that_refuse_nothing_are_not_logged(self, logged: Lines) -> None:
        made = authorization()
        decision_log.log.setLevel(logging.DEBUG)
        made.decisions.begin_period()
        assert not made.may(Request(ALICE), READ, Resource.topic("a"), logs_denial=False)
        assert not made.may_with_any(Request(ALICE), READ, ResourceType.TOPIC)
        assert made.operations(Request(ALICE), Resource.topic("a")) == 0
        assert logged.taken() == []

    def test_nothing_above_the_level_info(self, logged: Lines) -> None:
        made = authorization()
        decision_log.log.setLevel(logging.WARNING)
        made.decisions.begin_period()
        for number in range(1000):
            assert not asked(made, ALICE, READ, f"t-{number}")
        made.decisions.begin_period()
        assert logged.taken() == []


class TestFlood:
    def test_the_denials_of_one_client_are_limited_and_counted(self, logged: Lines) -> None:
        made = authorization()
        for number in range(1000):
            asked(made, ALICE, READ, f"t-{number}")
        assert len(logged.taken()) == decision_log.CLIENT_DENIALS_MAX
        asked(made, BOB)
        assert ["principal=User:bob" in line for line in logged.taken()] == [True], "another client is still logged"
        made.decisions.begin_period()
        count = 1000 - decision_log.CLIENT_DENIALS_MAX
        suppressed = "INFO raylog.authorizer denials suppressed principal=User:alice"
        assert logged.taken() == [f"{suppressed} host=10.0.0.1 count={count}"]
        made.decisions.begin_period()
        assert logged.taken() == []
        asked(made, ALICE)
        assert len(logged.taken()) == 1

    def test_many_clients_are_limited_together(self, logged: Lines) -> None:
        made = authorization()
        for number in range(1000):
            asked(made, Client(Principal("User", f"u-{number}"), "10.0.0.1"))
        assert len(logged.taken()) == decision_log.DENIALS_MAX
        made.decisions.begin_period()
        assert logged.taken() == [
            f"INFO raylog.authorizer denials of other clients suppressed count={1000 - decision_log.DENIALS_MAX}"
        ]

    def test_memory_is_bounded(self, logged: Lines) -> None:
        made = authorization()
        for number in range(1000):
            asked(made, Client(Principal("User", f"u-{number}"), "10.0.0.1"))
        assert len(made.decisions._logged) <= decision_log.DENIALS_MAX
        assert len(made.decisions._suppressed) <= decision_log.DENIALS_MAX


@pytest.mark.parametrize("name", ["a\nINFO forged", "a\r", "a\x1b[2J", "a\u2028b", "a\x85b", "a\x7fb", "\ud800"])
def test_a_name_cannot_begin_a_new_line_or_control_a_terminal(logged: Lines, name: str) -> None:
    made = authorization()
    asked(made, Client(Principal("User", name), "10.0.0.1"), READ, name)
    (line,) = logged.taken()
    assert line.isprintable()


def test_long_names_are_shortened(logged: Lines) -> None:
    asked(authorization(), ALICE, READ, "x" * 30_000)
    (line,) = logged.taken()
    assert f"resource=TOPIC:{'x' * decision_log.NAME_CHARACTERS_MAX}... " in line
