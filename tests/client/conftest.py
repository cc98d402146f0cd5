"""The clusters and faces that the suites of raylog's clients run over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.producer_faces import Face
from tests.client.served import Served, Target, serve
from tests.support.kafka_peer import kafka_peer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture(scope="module", params=["raylog", pytest.param("kafka", marks=pytest.mark.kafka)])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker of ours, and with --kafka an Apache Kafka."""
    if request.param == "raylog":
        yield request.getfixturevalue("served")
    else:
        with kafka_peer(tmp_path_factory.mktemp("kafka")) as peer:
            peer.start()
            yield Target(peer.bootstrap_servers)


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Callable[..., Face]:
    """Makes a producer of the parametrized face, and closes it at the end of the test."""

    def made(**settings: Any) -> Face:
        face = request.param(**settings)
        request.addfinalizer(lambda: [face.close(0) for _ in range(2)])
        return face  # type: ignore[no-any-return]

    return made
