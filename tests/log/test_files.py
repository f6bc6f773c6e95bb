"""What the operating system is asked, and what its answers mean."""

from __future__ import annotations

import pytest

from dqlab.log.files import Files, mounted
from dqlab.platforms import mount_table

MOUNTS = r"""/dev/sda1 / ext4 rw 0 0
server:/a /mnt/shared\040data nfs4 rw 0 0
gluster:/b /mnt/caf\303\251 fuse.glusterfs rw 0 0
gluster:/b /mnt/été\040deux fuse.glusterfs rw 0 0
x /mnt/tab\011and\134 lustre rw 0 0
/dev/sdb1 /home ext4 rw 0 0
autofs /home/net autofs rw 0 0
server:/c /home/net nfs4 rw 0 0
""".encode()


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/", "ext4"),
        ("/srv/runs", "ext4"),
        ("/mnt/shared data", "nfs4"),
        ("/mnt/shared data/runs", "nfs4"),
        ("/mnt/shared database", "ext4"),
        ("/mnt/café/runs", "fuse.glusterfs"),
        ("/mnt/été deux/runs", "fuse.glusterfs"),
        ("/mnt/tab\tand\\/runs", "lustre"),
        ("/home/ana", "ext4"),
        ("/home/net/ana", "nfs4"),
    ],
)
def test_file_system_of_a_path_is_that_of_its_mount_point(place: str, kind: str) -> None:
    """A mount point with a blank or an accent counts as well: taken for its parent's, a cluster's store looks local."""
    assert mounted(MOUNTS, place.encode()) == kind


@pytest.mark.skipif(not mount_table(), reason="this system does not list what is mounted")
def test_file_system_of_the_root_is_known(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert Files().filesystem(tmp_path_factory.getbasetemp())
