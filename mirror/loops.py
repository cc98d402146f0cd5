"""Flows between clusters as a graph: where records could come to a cluster twice, or come back. Pure.

A flow is (source, target). What is said of flows here is about those whose names of copies do not tell the source.
"""

from __future__ import annotations

from collections.abc import Collection

from raylog.core.errors import ConfigError

Edge = tuple[str, str]


def reached(edges: Collection[Edge], start: str, *, avoiding: str | None = None) -> set[str]:
    """Where records of a cluster come to, itself included, if they do not go on from `avoiding`."""
    found, new = set[str](), {start}
    while new:
        found |= new
        new = {target for source, target in edges if source in new and source != avoiding} - found
    return found


def by_origin(edges: Collection[Edge]) -> set[Edge]:
    """The flows that must tell records by where they were produced first: all that are connected with a cluster to
    which records come back, or come by more than one flow.
    """
    seeds = {edge for edge in edges if _comes_back(edges, edge) or _comes_twice(edges, edge)}
    chosen = set[Edge]()
    both_ways = {*edges, *((target, source) for source, target in edges)}
    for source, _ in seeds:
        connected = reached(both_ways, source)
        chosen |= {edge for edge in edges if edge[0] in connected}
    return chosen


def ways_of_others(edges: Collection[Edge], flow: Edge) -> dict[str, bool]:
    """The other clusters from which flows lead, and whether this flow passes on their records.

    It does if they come to its source, but not to its target by a flow of their own, nor first to its target.
    """
    source, target = flow
    return {
        origin: (origin, target) not in edges and source in reached(edges, origin, avoiding=target)
        for origin in sorted({one for one, _ in edges} - {source, target})
    }


def check_loops(keeping: Collection[Edge], telling: Collection[Edge]) -> None:
    """`telling` are the flows whose names tell the source. Raises ConfigError for what would copy without end or twice.

    A cluster without a flow of its own to another one must have one way there.
    """
    every = [*keeping, *telling]
    for source, target in telling:
        behind = reached(every, target)
        if source in behind and any(one in behind and source in reached(every, other) for one, other in keeping):
            text = f"{source}->{target} is in a loop with flows whose names do not tell the source"
            raise ConfigError(f"replication.policy.class: {text}: all flows of a loop must have the same policy")
    for origin, target in _pairs(keeping):
        if (origin, target) in keeping:
            continue
        ways = sorted(
            one for one, other in keeping if other == target and one in reached(keeping, origin, avoiding=target)
        )
        if len(ways) > 1:
            text = f"records of {origin} come to {target} by {' and by '.join(ways)}, under the same names"
            raise ConfigError(f"replication.policy.class: {text}: enable {origin}->{target}, or disable a flow")


def _pairs(edges: Collection[Edge]) -> list[Edge]:
    names = sorted({name for edge in edges for name in edge})
    return [(one, other) for one in names for other in names if one != other]


def _comes_back(edges: Collection[Edge], edge: Edge) -> bool:
    return edge[0] in reached(edges, edge[1])


def _comes_twice(edges: Collection[Edge], edge: Edge) -> bool:
    """Whether a cluster with a flow of its own to the target also reaches it by this flow."""
    source, target = edge
    direct = [one for one, other in edges if other == target and one != source]
    return any(source in reached(edges, each, avoiding=target) for each in direct)
