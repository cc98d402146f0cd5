"""Sessions end when they are idle or old, and there are never more than permitted."""

from __future__ import annotations

from raylog.console.sessions import Sessions


def sessions(count_max: int = 3) -> Sessions[str]:
    return Sessions(count_max=count_max, idle_ms_max=1_000, lifetime_ms_max=5_000)


def test_a_session_is_found_by_its_token_only() -> None:
    found = sessions()
    assert found.open("token", "csrf", "alice", 0) == []
    session = found.find("token", 10)
    assert session is not None
    assert (session.visitor, session.csrf) == ("alice", "csrf")
    assert found.find("", 10) is None
    assert found.find("tokenx", 10) is None


def test_use_keeps_a_session_until_it_is_too_old() -> None:
    found = sessions()
    found.open("token", "csrf", "alice", 0)
    for now_ms in range(900, 5_000, 900):
        assert found.find("token", now_ms) is not None
    assert found.find("token", 5_000) is None
    assert [each.visitor for each in found.expire(5_000)] == ["alice"]


def test_an_idle_session_ends() -> None:
    found = sessions()
    found.open("token", "csrf", "alice", 0)
    assert found.expire(999) == []
    assert found.find("token", 1_000) is None
    assert [each.visitor for each in found.expire(1_000)] == ["alice"]
    assert len(found) == 0


def test_one_too_many_ends_the_one_that_was_not_used_for_longest() -> None:
    found = sessions()
    for number, name in enumerate(("a", "b", "c")):
        found.open(name, "", name, number)
    assert found.find("a", 10) is not None
    assert [each.visitor for each in found.open("d", "", "d", 11)] == ["b"]
    assert [found.find(name, 12) is not None for name in "abcd"] == [True, False, True, True]


def test_a_session_that_was_ended_is_gone() -> None:
    found = sessions()
    found.open("token", "csrf", "alice", 0)
    ended = found.end("token")
    assert ended is not None
    assert ended.visitor == "alice"
    assert found.find("token", 1) is None
    assert found.end("token") is None


def test_all_end_with_the_console() -> None:
    found = sessions()
    found.open("a", "", "a", 0)
    found.open("b", "", "b", 0)
    assert [each.visitor for each in found.end_all()] == ["a", "b"]
    assert len(found) == 0
