"""All recipes, one after the other, on a cluster of their own."""

from __future__ import annotations

import raylog
from examples.recipes import work_queue
from examples.recipes.barrier import Barrier
from examples.recipes.configuration import Configuration
from examples.recipes.election import Candidate
from examples.recipes.lock import Lock
from examples.recipes.naming import Names
from examples.recipes.registry import Instance, Registry


def demonstrate(servers: str) -> None:
    with Names(servers, "alice") as alice, Names(servers, "bob") as bob:
        print("naming: alice", alice.claim("printer", "10.0.0.1"), "and bob", bob.claim("printer", "10.0.0.2"))
    with Instance(servers, "billing", "a", "10.0.0.3:80"), Registry(servers) as registry:
        print("registry:", registry.addresses("billing"))
    with Configuration(servers, lambda key, value: print(f"configuration: {key} is {value}")) as configuration:
        configuration.set("color", "blue")
        while "color" not in configuration.values:
            configuration.watch()
    with Candidate(servers, "demo", "alice") as candidate:
        while (leadership := candidate.campaign()) is None:
            pass
        print(f"election: alice leads with token {leadership.token}")
    with Lock(servers, "demo", "alice") as held:
        print(f"lock: alice has it with token {held.token}")
    with Barrier(servers, "start", "alice", 1) as barrier:
        barrier.enter()
        print("barrier: all are there")
    work_queue.create(servers)
    work_queue.put(servers, "one", "two")
    with work_queue.Worker(servers, "alice") as worker:
        done = 0
        while done < 2:
            done += worker.work(str.upper)
        print(f"queue: {done} items are done")


if __name__ == "__main__":
    with raylog.start("recipes") as cluster:
        demonstrate(cluster.bootstrap_servers)
