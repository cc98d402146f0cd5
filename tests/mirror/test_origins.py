"""With equal names each record comes once to each cluster that flows lead to, in the order of its origin."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raylog.core.errors import ConfigError, KafkaError
from raylog.mirror.loops import Edge, by_origin, check_loops, reached, ways_of_others
from raylog.mirror.origins import OWN_MAX, Origin, Origins, decode_origin, encode_origin
from tests.support.forms import by_form

CLUSTERS = "ABCDE"
EDGES = [(one, other) for one in CLUSTERS for other in CLUSTERS if one != other]


class Cluster:
    """A log of (value, producer id), and the topic of origins."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        self.topic: list[tuple[int, str]] = []
        self.ids = count(100)


class Flow:
    """Its streams are like workers: each has a position, and a producer with an id of its own in the target."""

    def __init__(self, edge: Edge, edges: list[Edge], clusters: dict[str, Cluster]) -> None:
        self.name, self.target_name = edge
        self.source, self.target = clusters[edge[0]], clusters[edge[1]]
        self.others = ways_of_others(edges, edge) if edge in by_origin(edges) else {}
        self.positions: dict[str | None, int] = {None: 0}
        self.restart()

    def restart(self) -> None:
        """With other producer ids, and what is known read again."""
        self.producers: dict[str | None, int] = {}
        self.origins, self.read = Origins(self.name, self.target_name, self.others), 0

    def step(self, records: int) -> None:
        for origin, position in list(self.positions.items()):
            batch = self.source.log[position : position + records]
            unknown = self.origins.unknown({producer_id for _, producer_id in batch})
            if unknown:
                for producer_id, found in self.source.topic[self.read :]:
                    self.origins.registered(producer_id, Origin(found, found))
                self.read = len(self.source.topic)
                self.origins.looked_for(unknown)
            for value, producer_id in batch:
                if self.origins.copies(producer_id, origin):
                    self.target.log.append((value, self._producer(origin)))
            self.positions[origin] = position + len(batch)
        for origin in self.origins.passed_on:
            self.positions.setdefault(origin, 0)

    def _producer(self, origin: str | None) -> int:
        if origin not in self.producers:
            self.producers[origin] = next(self.target.ids)
            self.target.topic.append((self.producers[origin], origin or self.name))
        return self.producers[origin]


@settings(max_examples=by_form(150, long=5_000), deadline=None)
@given(data=st.data())
def test_each_record_comes_once_to_each_cluster_whatever_the_flows(data: st.DataObject) -> None:
    edges = data.draw(st.lists(st.sampled_from(EDGES), unique=True, min_size=1, max_size=12))
    try:
        check_loops(edges, [])
    except ConfigError:
        assume(False)
    clusters = {name: Cluster() for name in CLUSTERS}
    flows = [Flow(edge, edges, clusters) for edge in edges]
    numbers = count()
    written: dict[str, list[str]] = {name: [] for name in CLUSTERS}
    for step in data.draw(st.lists(st.integers(0, 99), max_size=60)):
        flow = flows[step % len(flows)]
        if step % 5 == 0:
            value = f"{flow.name}{next(numbers)}"
            written[flow.name].append(value)
            flow.source.log.append((value, -1 if step % 2 else 7))
        elif step % 5 == 1:
            flow.restart()
        else:
            flow.step(1 + step % 3)
    for _ in range(4 * len(CLUSTERS)):
        for flow in flows:
            flow.step(1_000)
    for name, cluster in clusters.items():
        found = [value for value, _ in cluster.log]
        for origin in CLUSTERS:
            comes = name in reached(edges, origin)
            assert [value for value in found if value[0] == origin] == (written[origin] if comes else [])


def test_only_ids_that_were_not_looked_for_are_unknown() -> None:
    origins = Origins("S", "T")
    assert origins.unknown({-1, 5, 6}) == {5, 6}  # without an id a record is of the cluster that it is in
    origins.registered(5, Origin("T", "t"))
    origins.looked_for({5, 6})
    assert origins.unknown({-1, 5, 6}) == set()
    assert [origins.copies(producer_id, None) for producer_id in (-1, 5, 6)] == [True, False, True]
    origins.registered(8, Origin("X", "x"))
    assert (origins.copies(8, None), origins.passed_on) == (True, {})  # it is not in a loop with these


def test_other_clusters_of_a_loop_are_known_by_their_ids_and_until_they_were_asked_by_the_alias() -> None:
    origins = Origins("S", "T", {"x": True, "y": False})
    for number, origin in enumerate([Origin("X", "x"), Origin("Y", "y"), Origin("Z", "z"), Origin("T", "t")]):
        origins.registered(number, origin)
    assert [origins.copies(number, None) for number in range(4)] == [False, False, True, False]
    assert [origins.copies(number, "X") for number in range(4)] == [True, False, False, False]
    assert origins.passed_on == {"X": "x"}
    origins.learned("x", "Z")  # the other X was of another file
    assert origins.not_learned == {"y"}
    assert [origins.copies(number, None) for number in range(4)] == [True, False, False, False]
    assert origins.passed_on == {"Z": "x"}


def test_what_is_remembered_of_others_is_bounded() -> None:
    origins = Origins("S", "T")
    origins.registered(1, Origin("T", "t"))
    origins.looked_for(range(10, OWN_MAX))
    origins.looked_for(range(OWN_MAX, OWN_MAX + 100))
    assert origins.unknown({-1, 1, 10, OWN_MAX + 5}) == {10}


def test_origins_are_written_and_read() -> None:
    origin = Origin("6PMpHYL9QkeyXRj9Nrp4KA", "east")
    assert decode_origin(*encode_origin(1 << 62, origin)) == (1 << 62, origin)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b'{"producer_id": 1}', None),
        (b'{"producer_id": -1}', b'{"origin": "x", "alias": "x"}'),
        (b'{"producer_id": "1"}', b'{"origin": "x", "alias": "x"}'),
        (b'{"producer_id": 1}', b'{"origin": "", "alias": "x"}'),
        (b'{"producer_id": 1}', b'{"origin": "../x", "alias": "x"}'),
        (b'{"producer_id": 1}', b'{"origin": "x"}'),
        (b"[" * 100_000, b"\xff"),
    ],
)
def test_a_record_of_something_else_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(KafkaError, match="is no origin of a producer"):
        decode_origin(key, value)
