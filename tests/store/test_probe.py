"""What a directory lets a process do, on this file system and on others that are planted."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dqlab.log.files import Files, Lock
from dqlab.store.probe import Marker, Probe, probe


class Elsewhere(Files):
    """A file system whose locks say what they are told to say."""

    def __init__(self, *said: Lock, filesystem: str = "lustre") -> None:
        self._said = list(said)
        self._filesystem = filesystem

    def lock(self, descriptor: int) -> Lock:
        return self._said.pop(0) if len(self._said) > 1 else self._said[0]

    def filesystem(self, directory: Path) -> str:
        return self._filesystem


def test_local_directory_is_written_to_and_locked_and_left_as_it_was(
    tmp_path: Path, fingerprint: Callable[[Path], str]
) -> None:
    (tmp_path / "file").touch()
    before = fingerprint(tmp_path)

    found = probe(tmp_path)

    assert (found.error, found.writable, found.lock, found.marker) == ("", True, "held", "")
    assert found.free > 0
    assert fingerprint(tmp_path) == before


def test_file_system_without_locks_is_found_out(tmp_path: Path) -> None:
    found = probe(tmp_path, files=Elsewhere("unsupported"))

    assert (found.writable, found.lock, found.shared) == (True, "unsupported", True)


def _probed(directory: Path, marker: str) -> Probe:
    return probe(directory, marker)


@pytest.mark.cluster
def test_lock_of_another_process_is_seen(tmp_path: Path) -> None:
    with Marker(tmp_path) as marker, multiprocessing.get_context("spawn").Pool(1) as other:
        seen = other.apply(_probed, (tmp_path, marker.path))
        elsewhere = other.apply(_probed, (tmp_path, f"{marker.path}-of-nobody"))

    assert seen.marker == "locked"
    assert elsewhere.marker == "missing"
    assert list(tmp_path.iterdir()) == []


def test_lock_that_only_its_own_machine_sees_is_found_out(tmp_path: Path) -> None:
    with Marker(tmp_path) as marker:
        seen = probe(tmp_path, marker.path, Elsewhere("held", "refused", "held"))

    assert (seen.lock, seen.marker) == ("held", "unlocked")


def test_what_is_no_directory_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert probe(tmp_path / "file").error == "it is not a directory"
    assert probe(tmp_path / "file" / "below").error == "Not a directory"


def test_store_that_is_not_made_yet_is_judged_by_where_it_will_be(tmp_path: Path) -> None:
    """`connect(store=...)` makes it with its first queue."""
    store = tmp_path / "runs" / "here"
    with Marker(store) as marker:
        found = probe(store, marker.path)

    assert (found.made, found.writable, found.lock, found.marker) == (False, True, "held", "locked")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory_that_may_not_be_written_to_is_found_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    found = probe(tmp_path)
    tmp_path.chmod(0o700)

    assert (found.writable, found.lock) == (False, "")


class Refusing(Files):
    """A file system on which nothing can be made."""

    def create(self, path: Path) -> int:
        raise PermissionError(13, "Permission denied")


def test_directory_in_which_nothing_can_be_made_is_found_out(tmp_path: Path) -> None:
    found = probe(tmp_path, files=Refusing())

    assert (found.error, found.writable, found.lock) == ("", False, "")
