"""(shell) The application: static files, sessions, and the table of routes. It decides nothing itself."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raylog.client.client_config import ClientConfig
from raylog.console import logins
from raylog.console.admission import BODY_BYTES_MAX, HEADERS, Refusal, change_refusal, host_refusal
from raylog.console.answers import encoded, refused, status_of
from raylog.console.avro_schema import is_installed
from raylog.console.fields import Fields
from raylog.console.routes import ROUTES, Route, is_change
from raylog.console.sessions import Session, Sessions
from raylog.console.visitor import Visitor
from raylog.core.errors import ConfigError, KafkaError
from raylog.transport.system_time import now

log = logging.getLogger("raylog.console")
COOKIE: Final = "raylog-console"
EXPIRY_SECONDS: Final = 30.0
LOGINS_MAX: Final = 4
"""Logins at a time."""
FAILED_LOGIN_SECONDS: Final = 1.0
"""How long a failed login takes longer, which bounds how many passwords can be tried."""
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """How a console is served."""

    config: ClientConfig
    """The cluster, and how to reach it; not who logs in."""
    title: str = "raylog"
    read_only: bool = False
    allowed_hosts: Collection[str] = ()
    host: str = "127.0.0.1"
    port: int = 0
    certificate: str | None = None
    """A PEM file; with it and its `key` the console is served over TLS."""
    key: str | None = None


class Console:
    """The application. Belongs to the loop that serves it."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options
        self._properties = options.config.properties
        self._allowed = {name.lower() for name in options.allowed_hosts}
        self._sessions: Sessions[Visitor] = Sessions()
        self._logins = asyncio.Semaphore(LOGINS_MAX)
        self._static = _static_files()
        self._cookie = COOKIE
        routes = [
            HttpRoute("/api/session", self._guarded(self._show_session), methods=["GET"]),
            HttpRoute("/api/login", self._guarded(self._log_in), methods=["POST"]),
            HttpRoute("/api/logout", self._guarded(self._log_out), methods=["POST"]),
            *(HttpRoute(each.path, self._guarded(self._served(each)), methods=[each.method]) for each in ROUTES),
            HttpRoute("/{path:path}", self._show_file, methods=["GET"]),
        ]
        self.app: ASGIApp = _WithHeaders(Starlette(routes=routes), self._refuses_host)

    def use_port(self, port: int) -> None:
        """Cookies are shared by all ports of a host: several consoles need names of their own."""
        self._cookie = f"{COOKIE}-{port}"

    async def expire(self) -> None:
        """Ends sessions that are idle, until it is cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            await self._close(self._sessions.expire(now().monotonic_ms))

    async def close(self) -> None:
        await self._close(self._sessions.end_all())

    # --- sessions

    async def _show_session(self, request: Request) -> Response:
        """Who is logged in; where no login is needed, a session is opened."""
        session = self._session(request)
        needed = logins.needs_login(self._properties)
        if session is None and not needed:
            config = ClientConfig(self._options.config.bootstrap_servers, logins.anonymous(self._properties))
            return await self._open(Visitor(config, ""))
        return _json(self._described(session))

    async def _log_in(self, request: Request) -> Response:
        refusal = change_refusal(_headers(request), csrf=None, read_only=False, is_login=True)
        if refusal is not None:
            return _refusal(refusal)
        fields = await _body(request)
        user = fields.text("user", characters_max=logins.NAME_CHARACTERS_MAX)
        properties = logins.logged_in(
            self._properties,
            user=user,
            password=fields.text("password", characters_max=logins.NAME_CHARACTERS_MAX),
            mechanism=fields.text("mechanism", logins.mechanisms(self._properties)[0]),
        )
        async with self._logins:
            visitor = Visitor(ClientConfig(self._options.config.bootstrap_servers, properties), user)
            try:
                await visitor.admin.describe_cluster()
            except BaseException as error:
                await visitor.close()
                if isinstance(error, KafkaError) and status_of(error) == 401:
                    log.warning("console login failed", extra={"user": user})
                    await asyncio.sleep(FAILED_LOGIN_SECONDS)
                raise
        before = self._sessions.end(request.cookies.get(self._cookie, ""))
        if before is not None:
            await before.visitor.close()
        log.info("console login", extra={"user": user})
        return await self._open(visitor)

    async def _log_out(self, request: Request) -> Response:
        session = self._session(request)
        refusal = change_refusal(_headers(request), csrf=None if session is None else session.csrf, read_only=False)
        if refusal is not None:
            return _refusal(refusal)
        assert session is not None
        self._sessions.end(session.token)
        await session.visitor.close()
        answer = _json({})
        answer.delete_cookie(self._cookie, path="/", httponly=True, samesite="strict")
        return answer

    async def _open(self, visitor: Visitor) -> Response:
        token, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        await self._close(self._sessions.open(token, csrf, visitor, now().monotonic_ms))
        answer = _json(self._described(self._sessions.find(token, now().monotonic_ms)))
        secure = self._options.certificate is not None
        answer.set_cookie(self._cookie, token, path="/", httponly=True, samesite="strict", secure=secure)
        return answer

    def _session(self, request: Request) -> Session[Visitor] | None:
        return self._sessions.find(request.cookies.get(self._cookie, ""), now().monotonic_ms)

    def _described(self, session: Session[Visitor] | None) -> dict[str, Any]:
        needed = logins.needs_login(self._properties)
        return {
            "title": self._options.title,
            "bootstrap_servers": self._options.config.bootstrap_servers,
            "read_only": self._options.read_only,
            "login": needed,
            "mechanisms": logins.mechanisms(self._properties) if needed else [],
            "open": session is not None,
            "user": None if session is None else session.visitor.user,
            "csrf": None if session is None else session.csrf,
            "avro": is_installed(),
        }

    async def _close(self, sessions: Collection[Session[Visitor]]) -> None:
        for each in sessions:
            await each.visitor.close()

    # --- requests

    def _served(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            session = self._session(request)
            if session is None:
                return _refusal(Refusal(401, "log in first"))
            if not is_change(route):
                asked = route.handle(session.visitor, Fields(dict(request.query_params)))
                return _json(await while_connected(request, asked))
            read_only = self._options.read_only
            refusal = change_refusal(_headers(request), csrf=session.csrf, read_only=read_only)
            if refusal is not None:
                return _refusal(refusal)
            fields = await _body(request)
            log.info("console change", extra={"user": session.visitor.user, "request": f"{route.method} {route.path}"})
            return _json(await route.handle(session.visitor, fields))

        return serve

    def _guarded(self, serve: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                return await serve(request)
            except KafkaError as error:
                return _json(refused(error), status_of(error))
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception:
                log.exception("console request failed", extra={"path": request.url.path})
                return _refusal(Refusal(500, "the console has failed: its log says why"))

        return guarded

    def _refuses_host(self, host: str | None) -> Response | None:
        refusal = host_refusal(host, self._allowed)
        return None if refusal is None else _refusal(refusal)

    async def _show_file(self, request: Request) -> Response:
        found = self._static.get(request.path_params["path"] or "index.html")
        if found is None:
            return _refusal(Refusal(404, "there is no such page"))
        content, content_type = found
        return Response(content, media_type=content_type)


class _WithHeaders:
    """Refuses hosts, and adds the headers of every answer."""

    def __init__(self, app: ASGIApp, refuses: Callable[[str | None], Response | None]) -> None:
        self._app = app
        self._refuses = refuses
        self._headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            refusal = self._refuses(hosts[0].decode("latin-1") if len(hosts) == 1 else None)
            await (refusal or self._app)(scope, receive, send_with_headers)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})


async def while_connected(request: Request, asked: Awaitable[Any]) -> Any:
    """What is asked for. It is cancelled when the page is left, and raises ClientDisconnect."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    work, leaving = asyncio.ensure_future(asked), asyncio.ensure_future(left())
    try:
        await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        for each in (work, leaving):
            each.cancel()


def _static_files() -> dict[str, tuple[bytes, str]]:
    """The files of the page with their types, by name: no path of a request reaches the disk."""
    folder = files("raylog.console") / "static"
    found = {}
    for each in folder.iterdir():
        content_type = TYPES.get(each.name.rpartition(".")[2])
        if content_type is not None:
            found[each.name] = each.read_bytes(), content_type
    return found


def _headers(request: Request) -> dict[str, str]:
    return dict(request.headers.items())


async def _body(request: Request) -> Fields:
    """The JSON object in the body. Raises KafkaError."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise ConfigError(f"the body has more than {BODY_BYTES_MAX} bytes")
        parts.append(part)
    try:
        found = json.loads(b"".join(parts) or b"{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError("the body must be a JSON object")
    return Fields(found)


def _json(answer: Any, status: int = 200) -> Response:
    return Response(encoded(answer), status, media_type="application/json")


def _refusal(refusal: Refusal) -> Response:
    return _json({"error": {"code": None, "message": refusal.message, "items": {}}}, refusal.status)
