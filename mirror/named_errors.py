"""Errors that name the cluster in which they happened: a flow works with two. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from raylog.client.errors import AdminError
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
    """Those of single items, too."""
    for each in (error, *(error.errors.values() if isinstance(error, AdminError) else ())):
        if not each.message.startswith(_CLUSTER):
            each.message = f"{_CLUSTER}{alias}: {each.message}"
