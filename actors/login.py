"""(shell) Makes a cluster one that its first clients can log in to: certificate authority, users and client files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from raylog.actors.certificates import authority_path, make_authority
from raylog.actors.client_files import client_properties, new_password, read_password, write_client_files
from raylog.actors.data_dir import ClusterFiles
from raylog.actors.given_config import ADMINISTRATOR, GivenConfig
from raylog.actors.handle_door import calls_as_node
from raylog.client.admin.users import (
    UserScramCredentialUpsertion,
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from raylog.core.password import Password
from raylog.security.sasl.scram import ScramMechanism


@dataclass(frozen=True, slots=True)
class AdministratorLogin:
    """How the administrator of a secure cluster logs in."""

    root: Path
    password: Password
    is_new: bool
    """Whether the cluster may not have the password yet: no start with it has completed."""
    authority: Path | None
    """The file with the certificate that clients must trust; None: their system must trust that of the brokers."""

    def write(self, servers: str) -> dict[str, str]:
        """Write the client files. Returns the properties for a client. Raises ConfigError."""
        write_client_files(self.root, servers, self.password, self.authority)
        return client_properties(servers, self.password, self.authority)


def prepare_login(files: ClusterFiles, given: GivenConfig) -> tuple[ClusterFiles, AdministratorLogin | None]:
    """Before the actors are made: `files` with what this start decides about security, and the administrator's login.

    Without a client.properties, which may have been deleted, the administrator gets a new password. It is written
    before the cluster has it: no interruption can lose it. Raises ConfigError.
    """
    if not given.secure:
        return replace(files, secure=False), None
    from raylog.actors.placement import alive_hosts

    root, own = files.path.resolve(), next(iter(alive_hosts()))
    files = replace(files, authority_host=files.authority_host or own)
    if files.authority_host == own:
        make_authority(root, files.name)
    authority = None if given.has_own_keys else authority_path(root)
    password, is_known = read_password(root) or (new_password(), False)
    login = AdministratorLogin(root, password, not is_known, authority)
    if login.is_new:
        login.write("")
    return replace(files, secure=True), login


def create_users(
    brokers: Mapping[str, Any], secret: bytes, passwords: Mapping[str, Password], login: AdministratorLogin | None
) -> None:
    """Create those of the users, and the administrator, that do not exist yet. Raises KafkaError.

    `brokers` are handles by their names. The requests are sent as a node of the cluster: no user may exist who could
    send them.
    """
    if not passwords and login is None:
        return
    with calls_as_node(brokers, secret, client_id="raylog-start") as calls:
        existing = calls.run(describe_user_scram_credentials())
        wanted = {user: password for user, password in passwords.items() if user not in existing}
        if login is not None and (login.is_new or ADMINISTRATOR not in existing):
            wanted[ADMINISTRATOR] = login.password
        calls.run(
            alter_user_scram_credentials(
                UserScramCredentialUpsertion(user, password, mechanism)
                for user, password in wanted.items()
                for mechanism in ScramMechanism
            )
        )
