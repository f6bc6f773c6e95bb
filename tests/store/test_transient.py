"""The directories of clusters: what a process holds is never deleted, what a killed cluster left is."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

from dqlab.errors import BadOption
from dqlab.store.directories import ClusterDirectory, private_directory

DAY = 86_400.0


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path) -> Iterator[None]:
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        yield


def grow_old(place: Path) -> None:
    long_ago = time.time() - 30 * DAY
    os.utime(place, (long_ago, long_ago))


def begin_and_end() -> None:
    mine = ClusterDirectory("mine", scheduler=True)
    mine.sweep()
    mine.close(delete=True)


@pytest.mark.parametrize(
    ("scheduler", "held", "old", "stays"),
    [
        (True, True, True, True),
        (False, True, True, True),
        (True, False, False, False),
        (False, False, False, True),
        (False, False, True, False),
    ],
    ids=["alive", "its worker lives", "killed", "its workers restart", "its workers are gone"],
)
def test_a_cluster_that_begins_deletes_exactly_what_clusters_that_are_over_have_left(
    *, scheduler: bool, held: bool, old: bool, stays: bool
) -> None:
    other = ClusterDirectory("other", scheduler=scheduler)
    if not held:
        other.close(delete=False)
    if old:
        grow_old(other.path)

    begin_and_end()

    assert other.path.exists() is stays
    assert [place.name for place in private_directory().iterdir()] == ["other"] * stays


def test_workers_that_host_queues_keep_their_directory_for_a_day() -> None:
    """All may be restarting when another cluster begins, weeks after the directory was made."""
    directory = ClusterDirectory("other")
    grow_old(directory.path)
    directory.touch()
    directory.close(delete=False)

    begin_and_end()

    assert directory.path.exists()


def test_who_cleans_the_temporary_directory_sees_that_it_is_held() -> None:
    """systemd-tmpfiles passes over what is old below a directory that it cannot lock."""
    directory = ClusterDirectory("mine")
    cleaner = os.open(directory.path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(cleaner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    directory.close(delete=True)
    fcntl.flock(cleaner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(cleaner)


def test_what_was_deleted_but_for_a_part_is_deleted_by_the_next() -> None:
    """A cluster was killed while it deleted its directory: the file that said so may have gone first."""
    other = ClusterDirectory("other", scheduler=True)
    (other.path / "scheduler").unlink()
    other.close(delete=False)
    grow_old(other.path)

    begin_and_end()

    assert not other.path.exists()


def test_a_cluster_without_a_directory_for_transient_queues_still_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"dqlab-{os.getuid()}").write_text("no directory")

    begin_and_end()

    assert "event=no_directory_for_transient_queues" in caplog.text
    with pytest.raises(BadOption, match="temporary-directory"):
        private_directory()
