"""Finds the file system of a path in Linux's list of mounts, and whether it is suitable for logs."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# fmt: off
NETWORK_FILE_SYSTEMS: Final = frozenset((
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs", "smb3", "smbfs",
))
# fmt: on
"""Types in /proc/self/mountinfo of network file systems, on which locks, fsync and mappings are not reliable."""

_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system."""

    path: str
    file_system: str

    @property
    def is_network(self) -> bool:
        return self.file_system in NETWORK_FILE_SYSTEMS


def mount_of(path: str, mountinfo: str) -> Mount | None:
    """The mount that contains `path`, which is absolute and without links; None if none is listed.

    Source: proc_pid_mountinfo(5). If several are mounted at one place, the last one is visible.
    """
    found: Mount | None = None
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not separator or len(fields) < 5 or not kind:
            continue
        mount = Mount(_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[4]), kind[0])
        inside = path == mount.path or path.startswith(mount.path.rstrip("/") + "/")
        if inside and (found is None or len(mount.path) >= len(found.path)):
            found = mount
    return found
