"""A path belongs to the nearest mount above it; network file systems are known by name."""

from __future__ import annotations

import pytest

from raylog.logstore.mounts import Mount, mount_of

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 27 0:40 / /data rw,relatime shared:5 master:1 - nfs4 10.0.0.9:/export rw,vers=4.2
32 31 0:41 / /data/fast\040disk rw,relatime - xfs /dev/vdb rw
33 27 0:42 / /twice rw,relatime - ext4 /dev/vdc rw
34 27 0:43 / /twice rw,relatime - fuse.sshfs host: rw
half a line
"""


@pytest.mark.parametrize(
    ("path", "mount", "network"),
    [
        ("/home/log", Mount("/", "ext4"), False),
        ("/data", Mount("/data", "nfs4"), True),
        ("/data/log/broker-0", Mount("/data", "nfs4"), True),
        ("/database", Mount("/", "ext4"), False),
        ("/data/fast disk/log", Mount("/data/fast disk", "xfs"), False),
        ("/data/fast disks", Mount("/data", "nfs4"), True),
        ("/twice/log", Mount("/twice", "fuse.sshfs"), True),
    ],
)
def test_the_nearest_mount_applies(path: str, mount: Mount, network: bool) -> None:
    found = mount_of(path, MOUNTINFO)
    assert found == mount
    assert found.is_network is network


def test_a_path_without_a_listed_mount_is_unknown() -> None:
    assert mount_of("/home", "") is None
    assert mount_of("/home", "22 27 0:21 / /proc rw - proc proc rw") is None
