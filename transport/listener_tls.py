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
_Sources = tuple[TlsSettings, list[tuple[int, ...] | None]]


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
        self._failure: tuple[_Sources, str] | None = None
        """What could not be used last, and why."""

    def refresh(self, *, again: bool = False) -> None:
        """Read the stores again if the settings or the files have changed, or with `again`. Call it off the loop.

        If they cannot be used, the error is logged, the context stays as it is, and the next call reads them again:
        the owner of a file, or the number of open ones, may have changed meanwhile.
        """
        sources = self._sources()
        if sources == self._made_from and not again:
            return
        try:
            self.context = self._make(sources[0])
        except (ConfigError, OSError) as error:
            failure = sources, error.message if isinstance(error, ConfigError) else str(error)
            if failure != self._failure or again:
                log.error("TLS keys not changed", extra={"listener": self._listener, "reason": failure[1]})
            self._failure = failure
        else:
            self._made_from, self._failure = sources, None
            log.info("TLS keys changed", extra={"listener": self._listener})

    def _sources(self) -> _Sources:
        settings = self._settings()
        return settings, [_stamp(path) for path in store_files(settings)]


def _stamp(path: str) -> tuple[int, ...] | None:
    """Differs after the file was written or replaced; None if it cannot be read."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
