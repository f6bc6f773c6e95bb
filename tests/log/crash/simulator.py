"""Every disk that a loss of power may leave behind, built from what `recording` wrote down.

Names become durable by a sync of their directory, bytes by a sync of their file. Until then a
name operation may or may not have happened, in order (as on ext4, XFS) or not (the weak model),
and the unsynced bytes of a file may be there, missing, cut anywhere, zero, or without their
first sector. This is weaker than any file system in use: what survives here survives there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

from tests.log.crash.recording import DIRECTORY, Operation, RecordingFiles

__all__ = ["SECTOR", "Contents", "CrashState", "Image", "Key", "clear", "crash_states", "materialise"]

SECTOR = 512

Image = dict[str, bytes | None]
"""Relative path → bytes, None for a directory."""

Key = tuple[tuple[str, int], ...]
"""An image with the numbers of its files' contents in the place of the bytes."""


class Contents:
    """Every content that a file ever had, once; equal bytes have equal numbers, and a directory has 0."""

    def __init__(self) -> None:
        self._all: list[bytes | None] = [None]
        self._numbers: dict[bytes | None, int] = {None: 0}

    def number(self, data: bytes | None) -> int:
        """The number of some bytes."""
        number = self._numbers.get(data)
        if number is None:
            number = self._numbers[data] = len(self._all)
            self._all.append(data)
        return number

    def image(self, key: Key) -> Image:
        """The disk that has a key."""
        return {path: self._all[number] for path, number in key}


@dataclass(frozen=True, slots=True)
class CrashState:
    """One legal disk after a crash.

    Attributes
    ----------
    prefix : int
        How many operations had been made.
    names, data : str
        Which of the pending ones had happened: for messages of failing tests.
    mark : Any
        What had been promised by then.
    whole : bool
        All that was written is there, as after the death of the process alone.
    key : Key
        Equal for equal disks.
    contents : Contents
        Where the bytes are.
    """

    prefix: int
    names: str
    data: str
    mark: Any
    whole: bool
    key: Key
    contents: Contents

    @property
    def image(self) -> Image:
        """The disk."""
        return self.contents.image(self.key)

    def __str__(self) -> str:
        return f"after {self.prefix} operations, names {self.names}, data {self.data}"


def _play(content: bytes, operations: list[Operation]) -> bytes:
    if not operations:
        return content
    out = bytearray(content)
    for operation in operations:
        at = operation.offset
        if operation.kind == "write":
            out.extend(bytes(max(0, at - len(out))))
            out[at : at + len(operation.data)] = operation.data
        elif operation.kind == "truncate":
            del out[at:]
            out.extend(bytes(at - len(out)))
    return bytes(out)


def _nothing(content: bytes, pending: list[Operation], rng: Random) -> bytes:
    return content


def _everything(content: bytes, pending: list[Operation], rng: Random) -> bytes:
    return _play(content, pending)


def _cut(content: bytes, pending: list[Operation], rng: Random) -> bytes:
    """Some of the operations, and the last of those not whole."""
    done = rng.randrange(len(pending))
    torn = pending[done]
    if torn.kind == "write":
        data = torn.data[: rng.randrange(len(torn.data) + 1)]
        return _play(content, [*pending[:done], Operation("write", torn.inode, offset=torn.offset, data=data)])
    return _play(content, pending[:done])


def _zeros(content: bytes, pending: list[Operation], rng: Random) -> bytes:
    """The sizes reached the device, the bytes did not."""
    return _play(content, [_blank(operation, len(operation.data)) for operation in pending])


def _first_sector_missing(content: bytes, pending: list[Operation], rng: Random) -> bytes:
    """The device wrote the later sectors first."""
    first = next((at for at, operation in enumerate(pending) if operation.kind == "write"), None)
    if first is None:
        return _play(content, pending)
    hidden = SECTOR - pending[first].offset % SECTOR
    return _play(content, [*pending[:first], _blank(pending[first], hidden), *pending[first + 1 :]])


def _blank(operation: Operation, n: int) -> Operation:
    data = bytes(min(n, len(operation.data))) + operation.data[n:]
    return Operation(operation.kind, operation.inode, offset=operation.offset, data=data)


Damage = Callable[[bytes, list[Operation], Random], bytes]
DAMAGES: dict[str, Damage] = {
    "none": _nothing,
    "all": _everything,
    "cut": _cut,
    "zeros": _zeros,
    "first sector missing": _first_sector_missing,
}


class Disk:
    """What is durable, and what is not yet."""

    def __init__(self, recorded: RecordingFiles) -> None:
        self.names: dict[str, int] = dict(recorded.first_inodes)
        self.content: dict[int, bytes] = {
            inode: data for path, inode in self.names.items() if (data := recorded.image[path]) is not None
        }
        self.data: dict[int, list[Operation]] = {}
        self.moves: list[Operation] = []
        self.forgot = False  # then what was written is no longer all there

    def apply(self, operation: Operation) -> None:
        """Make one operation."""
        if operation.kind in ("write", "truncate"):
            self.data.setdefault(operation.inode, []).append(operation)
        elif operation.kind in ("create", "rename", "unlink"):
            if operation.kind == "create" and operation.inode != DIRECTORY:
                self.content[operation.inode] = b""
            self.moves.append(operation)
        elif operation.kind == "sync":
            pending = self.data.pop(operation.inode, [])
            self.content[operation.inode] = _play(self.content[operation.inode], pending)
        elif operation.kind == "forget":
            self.data.pop(operation.inode, None)
            self.forgot = True
        elif operation.kind == "sync_directory":
            synced = [move for move in self.moves if _touches(move, operation.path)]
            self.names = _moved(self.names, synced)
            self.moves = [move for move in self.moves if not _touches(move, operation.path)]

    @property
    def all_names(self) -> str:
        """The label of the table in which every name operation has happened."""
        return f"{len(self.moves)} of {len(self.moves)}"

    def name_tables(self, rng: Random, subsets: int) -> Iterator[tuple[str, dict[str, int]]]:
        """Which names may be there: each prefix of what is pending, last first, and some subsets."""
        for n in range(len(self.moves), -1, -1):
            yield f"{n} of {len(self.moves)}", _moved(self.names, self.moves[:n])
        if len(self.moves) > 1:
            for _ in range(subsets):
                chosen = [move for move in self.moves if rng.random() < 0.5]
                yield "a subset", _moved(self.names, chosen)

    def contents(self, rng: Random, mixtures: int) -> Iterator[tuple[str, dict[int, bytes]]]:
        """Which bytes may be there: the same fate for all unsynced files, and some mixtures of fates."""
        if not self.data:
            yield "synced", self.content
            return
        number = rng.getrandbits(32)
        for name in DAMAGES:
            yield name, self._after(dict.fromkeys(self.data, name), number)
        for at in range(mixtures if len(self.data) > 1 else 0):
            fates = {inode: rng.choice(list(DAMAGES)) for inode in self.data}
            yield "+".join(fates.values()), self._after(fates, number + at + 1)

    def _after(self, fates: dict[int, str], seed: int) -> dict[int, bytes]:
        """The bytes of each file after its fate; what becomes of one does not hang on the size of another."""
        changed = {
            inode: DAMAGES[fate](self.content[inode], self.data[inode], Random(seed << 32 | inode))
            for inode, fate in fates.items()
        }
        return self.content | changed


def _touches(move: Operation, directory: str) -> bool:
    return any(path and str(PurePosixPath(path).parent) == directory for path in (move.path, move.new))


def _moved(names: dict[str, int], moves: list[Operation]) -> dict[str, int]:
    out = dict(names)
    for move in moves:
        if move.kind == "create":
            out[move.path] = move.inode
        else:
            if out.get(move.path) == move.inode:
                del out[move.path]
            if move.kind == "rename":
                out[move.new] = move.inode
    return out


def _rows(names: dict[str, int]) -> list[tuple[str, int]]:
    """The files and directories that can be reached, parents first: what has no parent yet is nowhere."""
    rows: dict[str, int] = {}
    for path, inode in sorted(names.items()):
        parent = str(PurePosixPath(path).parent)
        if parent == "." or parent in rows:
            rows[path] = inode
    return list(rows.items())


def crash_states(
    recorded: RecordingFiles,
    contents: Contents,
    *,
    seed: int = 0,
    subsets: int = 2,
    mixtures: int = 2,
    every: int = 1,
) -> Iterator[CrashState]:
    """Yield the legal disks after each of the recorded operations, each with each mark once.

    Parameters
    ----------
    recorded : RecordingFiles
        What was done.
    contents : Contents
        Gets the bytes.
    seed : int
        Of the choices where there are too many.
    subsets, mixtures : int
        How many subsets of pending names, and mixtures of fates of unsynced files, per prefix.
    every : int
        Take each so many-th prefix only.
    """
    disk = Disk(recorded)
    mark = None
    seen: set[tuple[Key, bool]] = set()
    for prefix, operation in enumerate(recorded.operations, 1):
        disk.apply(operation)
        if operation.kind == "mark":
            if operation.mark != mark:
                seen.clear()
            mark = operation.mark
        if mark is None or prefix % every:
            continue
        rng = Random(seed << 32 | prefix)
        fates = list(disk.contents(rng, mixtures))
        everything = () if disk.forgot else ("synced", "all")
        for names_label, names in disk.name_tables(rng, subsets):
            rows = _rows(names)
            for data_label, content in fates:
                whole = data_label in everything and names_label == disk.all_names
                key = tuple(
                    (path, contents.number(None if inode == DIRECTORY else content[inode])) for path, inode in rows
                )
                if (key, whole) not in seen:
                    seen.add((key, whole))
                    yield CrashState(prefix, names_label, data_label, mark, whole, key, contents)


def clear(directory: Path) -> None:
    """Remove all that lies in a directory."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            clear(Path(entry.path))
            Path(entry.path).rmdir()
        else:
            os.unlink(entry.path)  # noqa: PTH108


def materialise(image: Image, root: Path) -> None:
    """Make a directory's contents equal to an image."""
    clear(root)
    for path, data in image.items():
        if data is None:
            (root / path).mkdir(mode=0o700)
            continue
        descriptor = os.open(root / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
