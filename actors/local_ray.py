"""(shell) The Ray that raylog runs on: the one this process knows, the one it is pointed to, or a small local one.

Ray 2.60 guards a cluster with a token. For a local Ray that a program starts, the choice is made on purpose: a token of
its own in the environment of its processes, which other users of the machine cannot read, and nothing left in the home
directory. A Ray that is joined has its token already, so none is invented for it. `raylog start`, whose cluster other
programs of the same user must find, leaves it to Ray to keep the token in the home directory (`keep_token_at_home`).
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
from types import ModuleType

from raylog.core.errors import ConfigError

LOCAL_RAY_CPUS = 4
"""CPUs a Ray started here claims to have: Spark's executors reserve theirs, and on two cores nothing would be left."""


def prepare_environment() -> None:
    """What Ray's processes inherit; to be called before Ray is imported. What the user has set stays."""
    os.environ.setdefault("RAY_LOG_TO_DRIVER", "0")


def keep_token_at_home() -> None:
    """Let a local Ray use the token in ~/.ray/auth_token, made on first use, as `ray.init` does by itself.

    To be called before Ray is imported, since the mode is read only then. What the environment says stays.
    """
    if "RAY_AUTH_TOKEN" not in os.environ:
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def join_or_start_ray(address: str | None) -> bool:
    """Connect this process to Ray. True where a local Ray was started, which is then ours to shut down.

    `address` is what `ray.init` takes; None means RAY_ADDRESS, else a new local Ray. Raises ConfigError where no Ray
    answers at the address, or it wants another token.
    """
    if "ray" in sys.modules:
        import ray

        if ray.is_initialized():
            return False
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address != "local":
        join_ray(address)
        return False
    _choose_token()
    ray = _quiet_ray()
    ray.init(
        address="local",
        num_cpus=LOCAL_RAY_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.WARNING,
    )
    return True


def join_ray(address: str, *, auth_mode: str | None = None) -> None:
    """Connect this process to the Ray at `address`. Raises ConfigError where none answers or it wants another token.

    `auth_mode` is what that Ray is known to ask for. Without it Ray sends the token of the home directory only to a Ray
    it has found by itself, unless RAY_AUTH_MODE=token says so.
    """
    if auth_mode is not None:
        _use_auth_mode(auth_mode)
    ray = _quiet_ray()
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, ray.exceptions.AuthenticationError, RuntimeError, ValueError) as error:
        raise ConfigError(f"address={address!r}: cannot join this Ray: {_first_line(error)}") from error


def auth_mode() -> str | None:
    """How the Ray this process is connected to guards itself, as far as the environment says it."""
    return os.environ.get("RAY_AUTH_MODE")


def _use_auth_mode(mode: str) -> None:
    """What the environment says stays. Ray reads the mode while it is imported, and after that has to be told."""
    if "RAY_AUTH_MODE" in os.environ:
        return
    os.environ["RAY_AUTH_MODE"] = mode
    if "ray" in sys.modules:
        import ray._raylet

        ray._raylet.Config.initialize("")  # type: ignore[attr-defined]  # as Ray does itself where it changes the mode


def _quiet_ray() -> ModuleType:
    """Ray, with its news kept to itself; warnings are shown, but for the one that token authentication is on."""
    import ray

    logging.getLogger("ray").setLevel(logging.WARNING)
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    if threading.current_thread() is not threading.main_thread():
        # Its only warning there is that it leaves SIGTERM alone, which is the reason to start it in such a thread.
        logging.getLogger("ray._private.worker").setLevel(logging.ERROR)
    return ray


def _choose_token() -> None:
    """A token for the local Ray about to be started. Ray reads it once in a process, so a second one uses it too."""
    if "RAY_AUTH_MODE" in os.environ:
        return
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    if "ray" not in sys.modules:  # Ray reads the mode once, while it is imported; later it finds out by itself, aloud
        os.environ["RAY_AUTH_MODE"] = "token"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
