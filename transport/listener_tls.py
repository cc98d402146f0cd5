"""(shell) A TLS context that follows its files. New connections use the newest keys; open ones keep theirs."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable

from raylog.config.tls import TlsSettings
from raylog.core.errors import ConfigError
from raylog.security.tls import server_context, store_files

log = logging.getLogger("raylog.transport")


class ListenerTls:
    """The TLS context of one listener, or of the links to the same listener of other nodes.

    `context` is for the next connection.
    """

    def __init__(
        self,
        listener: str,
        settings: Callable[[], TlsSettings],
        *,
        make: Callable[[TlsSettings], ssl.SSLContext] = server_context,
    ) -> None:
        """Reads the key and trust stores. Raises ConfigError."""
        self._listener = listener
        self._settings = settings
        self._make = make
        self._made_from = self._sources()
        self.context = make(self._made_from[0])

    def refresh(self, *, again: bool = False) -> None:
        """Read the stores again if the settings or the files have changed, or with `again`. Call it off the loop.

        If they are invalid, the error is logged and the context stays as it is.
        """
        sources = self._sources()
        if sources == self._made_from and not again:
            return
        self._made_from = sources
        try:
            self.context = self._make(sources[0])
        except ConfigError as error:
            log.error("TLS keys not changed", extra={"listener": self._listener, "reason": error.message})
        else:
            log.info("TLS keys changed", extra={"listener": self._listener})

    def _sources(self) -> tuple[TlsSettings, list[tuple[int, ...] | None]]:
        settings = self._settings()
        return settings, [_stamp(path) for path in store_files(settings)]


def _stamp(path: str) -> tuple[int, ...] | None:
    """Differs after the file was written or replaced; None if it cannot be read."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
