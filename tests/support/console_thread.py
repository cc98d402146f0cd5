"""A console served in a thread of this process, and a browser of it that shows no pages."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvloop

from raylog.console.application import ConsoleOptions
from raylog.console.server import ConsoleServer
from tests.support.hang import HANG_SECONDS


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Of an error."""
        return str(self.json["error"]["message"])


class Browser:
    """Keeps the cookie of the console at this URL, and sends the CSRF token of its session with every change."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.address = url.partition("://")[2]
        self.cookie = ""
        self.csrf = ""

    def get(self, path: str) -> Answer:
        return self.send("GET", path)

    def post(self, path: str, /, **fields: Any) -> Answer:
        return self.send("POST", path, fields)

    def delete(self, path: str, /, **fields: Any) -> Answer:
        return self.send("DELETE", path, fields)

    def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str | None] | None = None) -> Answer:
        """Headers that are None are not sent."""
        given: dict[str, str | None] = {"cookie": self.cookie, "host": self.address}
        if body is not None:
            given |= {"content-type": "application/json", "x-csrf-token": self.csrf}
        given |= headers or {}
        connection = http.client.HTTPConnection(self.address, timeout=HANG_SECONDS)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            sent = {name: value for name, value in given.items() if value is not None}
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            answer = Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()
        cookie = answer.headers.get("set-cookie")
        if cookie is not None:
            self.cookie = cookie.partition(";")[0]
        return answer

    def open(self) -> Any:
        """The session, which is opened where no login is needed."""
        found = self.get("/api/session").json
        self.csrf = found["csrf"] or ""
        return found

    def log_in(self, user: str, password: str, mechanism: str = "PLAIN") -> Answer:
        answer = self.post("/api/login", user=user, password=password, mechanism=mechanism)
        if answer.status == 200:
            self.csrf = answer.json["csrf"]
        return answer


@contextmanager
def console_thread(options: ConsoleOptions) -> Iterator[str]:
    """The URL of a console that is stopped when the block ends."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="console", daemon=True)
    thread.start()
    try:

        async def make() -> ConsoleServer:
            return ConsoleServer(options)

        server = asyncio.run_coroutine_threadsafe(make(), loop).result(HANG_SECONDS)
        serving = asyncio.run_coroutine_threadsafe(server.serve(), loop)
        yield server.url
        loop.call_soon_threadsafe(server.stop)
        serving.result(HANG_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANG_SECONDS)
        loop.close()
