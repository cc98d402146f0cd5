"""The console over HTTP: sessions, rights of whom has logged in, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from raylog.console.admission import HEADERS
from raylog.console.application import while_connected
from raylog.console.routes import ROUTES, Route, is_change
from tests.console.conftest import Served
from tests.support.console_thread import Browser

# --- who gets in


def test_without_a_login_a_session_opens_by_itself(served: Served) -> None:
    browser = Browser(served.plain)
    answer = browser.get("/api/session")
    assert answer.json["open"]
    assert answer.json["title"] == "shop"
    cookie = answer.headers["set-cookie"]
    port = served.plain.rpartition(":")[2]
    assert cookie.startswith(f"raylog-console-{port}=")
    assert "; HttpOnly" in cookie
    assert "; SameSite=strict" in cookie
    assert browser.open()["csrf"] == answer.json["csrf"]  # the same session


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_nothing_is_served_without_a_session(served: Served, route: Route) -> None:
    method, path, _ = route
    for url in (served.plain, served.with_login):
        assert Browser(url).send(method, path, None if method == "GET" else {}).status == 401


@pytest.mark.parametrize(
    "route", [each for each in ROUTES if is_change(each)], ids=lambda route: f"{route.method} {route.path}"
)
def test_no_change_is_served_without_the_csrf_token_or_by_a_read_only_console(served: Served, route: Route) -> None:
    method, path, _ = route
    browser = served.browser()
    assert browser.send(method, path, {}, {"x-csrf-token": None}).status == 403
    assert browser.send(method, path, {}, {"x-csrf-token": "x" * 43}).status == 403
    assert browser.send(method, path, {}, {"origin": "http://evil.example"}).status == 403
    assert browser.send(method, path, {}, {"content-type": "text/plain"}).status == 415
    reader = Browser(served.read_only)
    reader.open()
    assert reader.send(method, path, {}).message == "this console is read-only"


def test_a_wrong_password_is_refused(served: Served) -> None:
    browser = Browser(served.with_login)
    assert not browser.open()["open"]
    answer = browser.log_in("alice", "wrong")
    assert answer.status == 401
    assert "set-cookie" not in answer.headers
    assert browser.get("/api/topics").status == 401


def test_each_identity_sees_and_does_what_its_acls_permit(served: Served) -> None:
    names = {
        user: [each["name"] for each in served.logged_in(user).get("/api/topics").json["items"]]
        for user in ("admin", "alice", "nobody")
    }
    assert {"orders", "secrets"} <= set(names.pop("admin"))
    assert names == {"alice": ["orders"], "nobody": []}
    alice = served.logged_in("alice")
    for answer in (
        alice.post("/api/topics", name="new"),
        alice.delete("/api/topic", name="orders"),
        alice.post("/api/topic/configs", name="orders", configs={"retention.ms": "1"}),
        alice.get("/api/topic?name=secrets"),
    ):
        assert answer.status == 403
        assert "AUTHORIZATION_FAILED" in answer.json["error"]["code"]
    overview = alice.get("/api/overview").json
    assert overview["quorum"] is None
    assert overview["brokers"][0]["size_bytes"] is None
    assert alice.get("/api/topic?name=orders").json["page"]["items"][0]["end_offset"] == 0


def test_a_session_ends_with_its_logout(served: Served) -> None:
    browser = served.logged_in("alice")
    cookie = browser.cookie
    assert browser.post("/api/logout").status == 200
    browser.cookie = cookie
    assert browser.get("/api/topics").status == 401


# --- what comes in


@pytest.mark.parametrize("host", [None, "evil.example", "127.0.0.1.evil.example:80", ""])
def test_other_names_of_this_address_are_refused(served: Served, host: str | None) -> None:
    for path in ("/", "/app.js", "/api/session"):
        answer = Browser(served.plain).send("GET", path, None, {"host": host or "."})
        assert answer.status == 421
        assert "set-cookie" not in answer.headers


def test_every_answer_has_the_headers_that_protect_it(served: Served) -> None:
    browser = served.browser()
    for path in ("/", "/app.js", "/nothing", "/api/session", "/api/topics", "/api/topic?name=none", "/api/none"):
        headers = browser.get(path).headers
        assert {name: headers.get(name) for name in HEADERS} == HEADERS, path


@pytest.mark.parametrize(
    "path", ["/../server.py", "/%2e%2e/server.py", "/static/app.js", "/..%2fserver.py", "//etc/passwd", "/\u0000"]
)
def test_only_files_of_the_page_are_served(served: Served, path: str) -> None:
    assert served.browser().get(path.replace("\u0000", "%00")).status == 404


@pytest.mark.parametrize("body", [b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b""])
def test_a_body_that_is_no_object_is_refused(served: Served, body: bytes) -> None:
    answer = served.browser().send("POST", "/api/topics", body)
    assert answer.status == 400
    assert answer.message


def test_a_body_that_is_too_long_is_refused(served: Served) -> None:
    answer = served.browser().send("POST", "/api/topics", json.dumps({"name": "x" * (3 << 20)}).encode())
    assert (answer.status, "the body has more than" in answer.message) == (400, True)


# --- topics


def test_the_life_of_a_topic(served: Served) -> None:
    browser = served.browser()
    made = browser.post("/api/topics", name="life", partitions="3", replicas="", configs={"retention.ms": "5000"})
    assert made.status == 200, made
    assert browser.post("/api/topics", name="life").json["error"]["code"] == "TOPIC_ALREADY_EXISTS"
    assert browser.post("/api/topic/partitions", name="life", partitions=5).status == 200
    described = browser.get("/api/topic?name=life&limit=2&start=4").json
    assert (described["partitions"], described["page"]["total"]) == (5, 5)
    assert [each["partition"] for each in described["page"]["items"]] == [4]
    assert browser.post("/api/topic/configs", name="life", configs={"cleanup.policy": "compact"}).status == 200
    own = {each["name"]: each["value"] for each in browser.get("/api/topic/configs?name=life").json if each["own"]}
    assert own == {"retention.ms": "5000", "cleanup.policy": "compact"}
    assert browser.post("/api/topic/configs", name="life", configs={"retention.ms": None}).status == 200
    own = {each["name"]: each["value"] for each in browser.get("/api/topic/configs?name=life").json if each["own"]}
    assert own == {"cleanup.policy": "compact"}
    sizes = browser.get("/api/topics/sizes?names=life,none").json
    assert sizes == {"life": {"records": 0, "size_bytes": 0, "replicas_size_bytes": 0}}
    assert browser.delete("/api/topic", name="life").status == 200
    assert "life" not in {each["name"] for each in browser.get("/api/topics").json["items"]}


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/api/topics", {"name": "a/b"}, 400),
        ("/api/topics", {"name": "x" * 250}, 400),
        ("/api/topics", {"name": ".."}, 400),
        ("/api/topics", {"name": "huge", "partitions": 10**18}, 400),
        ("/api/topics", {"name": "huge", "replicas": 3}, 400),
        ("/api/topics", {"name": "odd", "configs": {"no.such.key": "1"}}, 400),
        ("/api/topic/partitions", {"name": "orders", "partitions": 1}, 400),
        ("/api/topic/partitions", {"name": "none", "partitions": 3}, 404),
        ("/api/topic/configs", {"name": "orders", "configs": {}}, 400),
        ("/api/topic/configs", {"name": "orders", "configs": {"retention.ms": "soon"}}, 400),
    ],
)
def test_refused_changes_of_topics(served: Served, path: str, fields: dict[str, object], status: int) -> None:
    answer = served.browser().post(path, **fields)
    assert answer.status == status, answer
    assert answer.message


def test_the_overview_counts_what_there_is(served: Served) -> None:
    browser = served.browser()
    found = browser.get("/api/overview").json
    assert [each["id"] for each in found["brokers"]] == [0]
    assert found["summary"]["offline"] == 0
    assert found["summary"]["topics"] >= 2
    assert found["quorum"]["leader"] == 1000
    assert found["brokers"][0]["total_bytes"] > 0
    assert browser.get("/api/throughput").json["next_ms"] >= 2_000


# --- messages


HOSTILE = '<script>document.title="run"</script><img src=x onerror="document.title=1">'
NOTES: list[tuple[str, dict[str, Any]]] = [
    ("plain", {}),
    ('{"a":1}', {"headers": [{"name": "source", "value": "page"}]}),
    (HOSTILE, {}),
    ("", {"value_format": "null"}),
    ("00ff", {"value_format": "hex"}),
]


def test_messages_are_written_browsed_and_followed(served: Served) -> None:
    browser = served.browser()
    browser.post("/api/topics", name="notes", partitions=2)
    written = [
        browser.post("/api/messages", topic="notes", partition=number % 2, key=f"key-{number}", value=value, **more)
        for number, (value, more) in enumerate(NOTES)
    ]
    assert [answer.json for answer in written] == [
        {"partition": number % 2, "offset": number // 2} for number in range(5)
    ]
    found = browser.get("/api/messages?topic=notes").json
    shown = {each["key"]["text"]: (each["value"]["format"], each["value"]["text"]) for each in found["records"]}
    assert shown["key-0"] == ("text", "plain")
    assert shown["key-1"] == ("json", '{\n  "a": 1\n}')
    assert shown["key-2"] == ("text", HOSTILE)
    assert shown["key-3"] == ("null", None)
    assert shown["key-4"][0] == "hex"
    assert found["positions"] == {"0": 3, "1": 2}
    one = browser.get("/api/messages?topic=notes&from=earliest&key=key-1").json["records"]
    assert [(each["offset"], each["headers"][0]["value"]["text"]) for each in one] == [(0, "page")]
    at = browser.get("/api/messages?topic=notes&partition=0&from=offset&at=1&count=1").json
    assert [each["key"]["text"] for each in at["records"]] == ["key-2"]
    assert (at["positions"], at["complete"]) == ({"0": 2}, False)
    onward = browser.get("/api/messages?topic=notes&partition=0&from=positions&positions=0:2&wait_ms=5000").json
    assert [each["key"]["text"] for each in onward["records"]] == ["key-4"]
    later = browser.get(f"/api/messages?topic=notes&from=time&at={found['records'][0]['timestamp_ms'] + 60_000}").json
    assert (later["records"], later["complete"]) == ([], True)
    whole = browser.get("/api/message?topic=notes&partition=1&offset=0").json
    assert whole["value"]["text"] == '{\n  "a": 1\n}'


def test_a_message_that_comes_later_is_followed(served: Served) -> None:
    browser = served.browser()
    browser.post("/api/topics", name="followed")
    answers: list[object] = []
    follow = "/api/messages?topic=followed&from=positions&positions=0:0&wait_ms=5000"
    following = threading.Thread(target=lambda: answers.append(browser.get(follow).json["records"]))
    following.start()
    assert browser.post("/api/messages", topic="followed", value="late").status == 200
    following.join()
    assert [each["value"]["text"] for each in answers[0]] == ["late"]  # type: ignore[attr-defined]


def test_a_topic_deleted_while_it_is_shown_does_not_come_back(served: Served) -> None:
    browser = served.browser()
    browser.post("/api/topics", name="deleted")
    browser.post("/api/messages", topic="deleted", value="one")
    follow = "/api/messages?topic=deleted&from=positions&positions=0:1&wait_ms=2000"
    following = threading.Thread(target=lambda: browser.get(follow))
    following.start()
    while following.is_alive() and not served.running.broker.delayed:
        time.sleep(0.01)  # until the request waits for a record
    assert browser.delete("/api/topic", name="deleted").status == 200
    following.join()
    assert browser.post("/api/messages", topic="deleted", value="two").status == 404
    with served.admin() as admin:
        assert "deleted" not in {each.name for each in admin.list_topics()}


def test_a_request_ends_when_the_page_is_left() -> None:
    """A session reads for few requests at once: those of a page that was left must not keep the next one waiting."""
    ended = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def receive() -> dict[str, str]:
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def leave() -> None:
        with pytest.raises(ClientDisconnect):
            await while_connected(Request({"type": "http"}, receive), endless())
        await asyncio.sleep(0)
        assert ended == [True]

    asyncio.run(leave())


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/messages?topic=none", 404),
        ("/api/messages?topic=orders&partition=9", 404),
        ("/api/messages?topic=orders&count=100000", 400),
        ("/api/messages?topic=orders&value_format=xml", 400),
        ("/api/messages?topic=orders&value_format=avro&schema={", 400),
        ("/api/messages?topic=orders&wait_ms=86400000", 400),
        ("/api/message?topic=orders&partition=0&offset=999999", 400),
    ],
)
def test_refused_requests_for_messages(served: Served, path: str, status: int) -> None:
    assert served.browser().get(path).status == status


def test_messages_need_the_rights_to_read_and_write(served: Served) -> None:
    alice, nobody = served.logged_in("alice"), served.logged_in("nobody")
    assert alice.post("/api/messages", topic="orders", value="by alice").status == 200
    assert "by alice" in str(alice.get("/api/messages?topic=orders").json)
    for answer in (
        nobody.get("/api/messages?topic=orders"),
        nobody.get("/api/message?topic=orders&partition=0&offset=0"),
        nobody.post("/api/messages", topic="orders", value="x"),
        alice.get("/api/messages?topic=secrets"),
    ):
        assert (answer.status, answer.json["error"]["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
