"""(shell) The HTTP server of a console: one port, with or without TLS, until it is stopped."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final

import uvicorn

from raylog.console.application import Console, ConsoleOptions
from raylog.core.errors import ConfigError

CONNECTIONS_MAX: Final = 500
BACKLOG: Final = 128
REQUEST_HEAD_BYTES_MAX: Final = 64 << 10


class ConsoleServer:
    """One console on one port. Belongs to the loop in which it is started."""

    def __init__(self, options: ConsoleOptions) -> None:
        """Opens the port: connections wait until `serve`. Raises ConfigError."""
        self._options = options
        _check_certificate(options)
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        self._socket = socket.socket(family)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((options.host, options.port))
            self._socket.listen(BACKLOG)
        except (OSError, OverflowError) as error:
            self._socket.close()
            rule = error.strerror if isinstance(error, OSError) else "a port must be between 0 and 65535"
            raise ConfigError(f"{options.host}:{options.port}: {rule}") from error
        port = self._socket.getsockname()[1]
        scheme = "http" if options.certificate is None else "https"
        host = f"[{options.host}]" if ":" in options.host else options.host
        self.url = f"{scheme}://{host}:{port}"
        self._port = port
        self._server: uvicorn.Server | None = None

    async def serve(self) -> None:
        """Until `stop`."""
        console = Console(self._options)
        console.use_port(self._port)
        config = uvicorn.Config(
            console.app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=REQUEST_HEAD_BYTES_MAX,
            timeout_graceful_shutdown=1,
            http="h11",
            ws="none",
            ssl_certfile=self._options.certificate,
            ssl_keyfile=self._options.key,
        )
        self._server = _Server(config)
        expiry = asyncio.create_task(console.expire())
        try:
            await self._server.serve([self._socket])
        finally:
            expiry.cancel()
            with suppress(asyncio.CancelledError):
                await expiry
            await console.close()
            self._socket.close()

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True


class _Server(uvicorn.Server):
    """Leaves signals to the program."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def _check_certificate(options: ConsoleOptions) -> None:
    """Raises ConfigError."""
    if options.certificate is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(options.certificate, options.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{options.certificate} and {options.key}: {error}") from error
