"""Pages of others reach nothing: not by a name that leads here, nor by a form, nor without the CSRF token."""

from __future__ import annotations

import pytest

from raylog.console.admission import HEADERS, change_refusal, host_refusal

JSON = {"content-type": "application/json", "host": "127.0.0.1:8080", "x-csrf-token": "secret"}


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "localhost", "LOCALHOST:8080", "[::1]:8080", "10.0.0.7", "console.example.com:8080"],
)
def test_addresses_and_given_names_are_served(host: str) -> None:
    assert host_refusal(host, {"console.example.com"}) is None


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8080",
        "evil.example@127.0.0.1",
        "127.0.0.1/evil",
        "127.0.0.1?x",
        "127.0.0.1:port",
        "[::1",
        "console.example.com.",
        "0x7f000001",
        "2130706433",
    ],
)
def test_names_that_lead_here_are_refused(host: str | None) -> None:
    refusal = host_refusal(host, {"console.example.com"})
    assert refusal is not None
    assert refusal.status == 421


def test_a_change_of_the_console_itself_is_admitted() -> None:
    own = {**JSON, "origin": "http://127.0.0.1:8080", "content-type": "application/json; charset=utf-8"}
    assert change_refusal(own, csrf="secret", read_only=False) is None
    assert change_refusal(JSON, csrf="secret", read_only=False) is None


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"x-csrf-token": "wrong"}, 403),
        ({"x-csrf-token": ""}, 403),
        ({"x-csrf-token": "sécret"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": ""}, 415),
    ],
)
def test_others_are_refused(changed: dict[str, str], status: int) -> None:
    refusal = change_refusal({**JSON, **changed}, csrf="secret", read_only=False)
    assert refusal is not None
    assert refusal.status == status


def test_without_a_session_nothing_is_changed() -> None:
    refusal = change_refusal({**JSON, "x-csrf-token": ""}, csrf=None, read_only=False)
    assert refusal is not None
    assert refusal.status == 403


def test_a_read_only_console_changes_nothing() -> None:
    refusal = change_refusal(JSON, csrf="secret", read_only=True)
    assert refusal is not None
    assert refusal.message == "this console is read-only"


def test_a_login_needs_no_token_but_the_origin_and_the_type() -> None:
    assert change_refusal(JSON, csrf=None, read_only=True, is_login=True) is None
    for changed in ({"origin": "http://evil.example"}, {"content-type": "text/plain"}):
        assert change_refusal({**JSON, **changed}, csrf=None, read_only=False, is_login=True) is not None


def test_no_inline_script_is_permitted() -> None:
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
