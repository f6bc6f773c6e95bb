"""What the operating system is asked, and what its answers mean."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from dqlab.log.files import Buffer, Directory, Files, is_ours, mounted
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


class Slow(Files):
    """Writes three bytes at a time, and reports a rename that happened as failed."""

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        return super().write(descriptor, [b"".join(buffers)[:3]], offset)

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        raise OSError(errno.ENOENT, "the first try of the rename was done, its answer lost")


class Dead(Files):
    """Syncs nothing."""

    def sync(self, descriptor: int) -> None:
        raise OSError(errno.EIO, "no sync")


def test_a_published_file_is_whole_whatever_the_calls_return(tmp_path: Path) -> None:
    Directory(tmp_path, Slow()).publish("MANIFEST-0000000001", [b"hello ", b"world"])
    assert (tmp_path / "MANIFEST-0000000001").read_bytes() == b"hello world"
    assert [path.name for path in tmp_path.iterdir()] == ["MANIFEST-0000000001"]


def test_a_file_that_cannot_be_synced_never_gets_its_name(tmp_path: Path) -> None:
    (tmp_path / "reserve").write_bytes(b"old")
    with pytest.raises(OSError, match="no sync"):
        Directory(tmp_path, Dead()).publish("reserve", [b"new"])
    assert (tmp_path / "reserve").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["reserve"]


@pytest.mark.parametrize("name", ["LOCK", "EPOCH-0000000001", "MANIFEST-0000000001.tmp", "0000000001-0000000002.seg"])
def test_our_files_are_known_by_name(name: str) -> None:
    assert is_ours(name)


@pytest.mark.parametrize("name", ["notes.txt", "EPOCH-1", "reserve", "0000000001.seg"])
def test_other_files_are_not_ours(name: str) -> None:
    assert not is_ours(name)
