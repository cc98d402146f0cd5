"""Errors that name the cluster in which they happened: a flow works with two. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from raylog.core.errors import KafkaError

_CLUSTER: Final = "cluster "


@contextmanager
def naming(alias: str) -> Iterator[None]:
    """A KafkaError of the block names this cluster, unless it names one already."""
    try:
        yield
    except KafkaError as error:
        name_cluster(error, alias)
        raise


def name_cluster(error: KafkaError, alias: str) -> None:
    if not error.message.startswith(_CLUSTER):
        error.message = f"{_CLUSTER}{alias}: {error.message}"
