"""(shell) A store of values in a file system of fsspec: a folder for each topic, a file for each value.

On file:// a value is written under another name, synchronized with the disk, and renamed; other file systems keep a
value when it is closed. Requires the extra `store`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from raylog.client.chunks.envelope import digest_text, new_digest
from raylog.client.chunks.references import (
    UNFINISHED,
    StoredValue,
    ValueMissing,
    ValueStore,
    is_of_value,
    store_failed,
)
from raylog.client.chunks.splitting import Pieces
from raylog.config.large_messages import SEND_STORE_URL, LargeReceiveSettings, LargeSendSettings
from raylog.core.errors import ConfigError, KafkaError

STORE_URL: Final = SEND_STORE_URL.name
PIECE_BYTES: Final = 1 << 20


def store_for(large: LargeSendSettings | LargeReceiveSettings | None, given: ValueStore | None) -> ValueStore | None:
    """The store that a client uses: the one of the program, or that of the URL. Raises ConfigError."""
    if large is None:
        if given is not None:
            raise ConfigError("value_store requires large.message.enabled=true")
        return None
    if given is not None:
        if large.store_url:
            raise ConfigError(f"{STORE_URL}={large.store_url}: the program has given a value_store too")
        if isinstance(large, LargeSendSettings) and large.indexes_max is not None:
            raise ConfigError("large.message.compacted.segments: values are not split with a value_store")
        return given
    return FsspecStore(large.store_url) if large.store_url else None


class FsspecStore:
    """Values below a URL."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError."""
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            text = f"{STORE_URL}={url}: fsspec is not installed; it belongs to raylog's extra `store`"
            raise ConfigError(text) from None
        try:
            self._fs, self._root = url_to_fs(url)
        except Exception as error:  # of an unknown protocol, or of a file system's own kind
            raise ConfigError(f"{STORE_URL}={url}: {error!r}") from error
        self._url = url
        protocol = self._fs.protocol
        self._is_local = "file" in ((protocol,) if isinstance(protocol, str) else protocol)

    def write(self, name: str, source: Pieces) -> bytes:
        """Raises KafkaError."""
        digest = new_digest()
        path = self._path(name)
        try:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._fs.open(path + UNFINISHED if self._is_local else path, "wb") as file:
                for piece in source.pieces(PIECE_BYTES):
                    digest.update(piece)
                    file.write(piece)
                if self._is_local:
                    file.flush()
                    os.fsync(file.fileno())
            if self._is_local:
                _rename(path + UNFINISHED, path)
        except KafkaError:
            raise
        except Exception as error:  # of whatever kind this file system has
            raise store_failed(f"value {name} was not written to {self._url}", error) from error
        return digest_text(digest)

    def read(self, name: str, size: int) -> Iterator[bytes]:
        """Raises ValueMissing."""
        try:
            with self._fs.open(self._path(name), "rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
        except Exception as error:
            raise ValueMissing(repr(error)) from error

    def values_of(self, topic: str) -> Iterator[StoredValue]:
        """Also files whose writer has ended before it had written them. Raises KafkaError."""
        try:
            self._fs.invalidate_cache()
            found = self._fs.find(self._path(topic), detail=True)
        except FileNotFoundError:
            return
        except Exception as error:
            raise store_failed(f"values of topic {topic!r} in {self._url} cannot be listed", error) from error
        for path, details in found.items():
            name = "/".join(path.split("/")[-2:])
            if name.startswith(f"{topic}/") and is_of_value(name):
                yield StoredValue(name, _modified_ms(details))

    def delete(self, name: str) -> None:
        """Raises KafkaError."""
        try:
            self._fs.rm_file(self._path(name))
        except FileNotFoundError:
            pass
        except Exception as error:
            raise store_failed(f"value {name} of {self._url} cannot be deleted", error) from error

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def _rename(path: str, to: str) -> None:
    """And synchronize the folder, and the one above, which may be new."""
    os.replace(path, to)
    folder = Path(to).parent
    for each in (folder, folder.parent):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _modified_ms(details: dict[str, Any]) -> int:
    """By the names that fsspec's file systems have for it; the present if there is none, so that nothing is deleted."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "modified", "created"):
        value = details.get(key)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return int(1000 * (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
        if isinstance(value, (int, float)):
            return int(1000 * value)
    return int(1000 * datetime.now(UTC).timestamp())
