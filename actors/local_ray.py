"""(shell) The Ray that raylog runs on: the one this process knows, the one it is pointed to, or a small local one.

Ray 2.60 guards a cluster with a token. For a local Ray started here the choice is made on purpose: a token of its own in
the environment of its processes, which other users of the machine cannot read, and nothing left in the home directory.
Only `raylog start`, whose cluster other programs of the same user must find, leaves it to Ray to keep the token there.
"""

from __future__ import annotations

import os
import secrets
import sys

LOCAL_RAY_CPUS = 4
"""CPUs a Ray started here claims to have: Spark's executors reserve theirs, and on two cores nothing would be left."""


def prepare_environment() -> None:
    """What Ray's processes inherit; to be called before Ray is imported. What the user has set stays."""
    os.environ.setdefault("RAY_LOG_TO_DRIVER", "0")
    if "RAY_ADDRESS" not in os.environ and "RAY_AUTH_MODE" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        if "ray" not in sys.modules:  # Ray reads the mode once, while it is imported
            os.environ["RAY_AUTH_MODE"] = "token"


def join_or_start_ray(address: str | None) -> bool:
    """Connect this process to Ray. True where a local Ray was started, which is then ours to shut down.

    `address` is what `ray.init` takes; None means RAY_ADDRESS, else a new local Ray.
    """
    import ray

    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS")
    if address is not None and address != "local":
        ray.init(address=address, log_to_driver=False)
        return False
    ray.init(
        address="local",
        num_cpus=LOCAL_RAY_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    return True
