"""A log at rest, every way its bytes can rot, and exactly what must be left of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dqlab.log.log import Log
from dqlab.log.records import Position
from dqlab.log.writer import LogOptions
from tests.log.crash.invariants import Outcome, reopen
from tests.log.crash.ledger import Entry, Ledger
from tests.log.crash.recording import read_tree
from tests.log.crash.simulator import SECTOR, Image, materialise
from tests.log.crash.workload import Workload

__all__ = ["Rest", "cuts", "flips", "garbage", "judge", "open_damaged", "sectors"]


@dataclass
class Rest:
    """A log that no process has open.

    Attributes
    ----------
    image : dict
        Its files, below ``log/``.
    records : dict
        Serial of a record → its file, position and what it did; those behind the checkpoint only.
    live : set of int
        Ids alive.
    """

    image: Image
    records: dict[int, tuple[str, Position, Entry]]
    live: set[int]
    options: LogOptions

    def segments(self) -> list[str]:
        """Files with records of the ledger, in order."""
        return sorted({file for file, _, _ in self.records.values()})

    def with_file(self, file: str, data: bytes | None) -> Image:
        """The image with another file in place of one; None: without it."""
        image = dict(self.image)
        if data is None:
            del image[file]
        else:
            image[file] = data
        return image

    def bytes_of(self, file: str) -> bytes:
        """A file's bytes."""
        data = self.image[file]
        assert data is not None
        return data


def at_rest(root: Path, seed: int, steps: int, options: LogOptions, *, checkpoints: int = 0, clean: bool) -> Rest:
    """Make a log: with checkpoints in it, or none."""
    log = Log.open(root / "log", options=options)
    ledger = Ledger(log)
    load = Workload(ledger, Random(seed))
    quiet = frozenset({"checkpoint", "compact", "collect"})
    for _ in range(checkpoints):
        load.steps(steps, without=quiet)
        load.checkpoint()
    behind = ledger.history.issued
    load.steps(steps, without=quiet)
    load.commit()
    live = ledger.live
    log.close(clean=clean)
    image = read_tree(root)
    names = {int(Path(name).name.split("-")[0]): name for name in image if name.endswith(".seg")}
    records = {
        entry.serial: (names[position.segment], position, entry)
        for entry in ledger.history.entries
        if entry.serial >= behind and (position := ledger.positions[entry.serial])
    }
    return Rest(image, records, live, options)


# --- damage ---------------------------------------------------------------------------------


def cuts(data: bytes, step: int = 1) -> Iterator[tuple[str, bytes]]:
    """The file ends earlier, at every offset."""
    for at in range(0, len(data), step):
        yield f"cut at {at}", data[:at]


def flips(data: bytes, step: int = 1) -> Iterator[tuple[str, bytes]]:
    """One bit is another, each `step`-th bit of the file; a step of 9 meets every bit of a byte in turn."""
    for bit in range(0, 8 * len(data), step):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit % 8} of byte {bit // 8}", bytes(changed)


def sectors(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Sectors are zero, copied over others, exchanged."""
    whole = [data[at : at + SECTOR] for at in range(0, len(data), SECTOR)]
    for i, one in enumerate(whole):
        yield f"sector {i} zero", b"".join([*whole[:i], bytes(len(one)), *whole[i + 1 :]])
        for j, other in enumerate(whole):
            if i != j and len(one) == len(other):
                copied, swapped = list(whole), list(whole)
                copied[j] = one
                swapped[i], swapped[j] = other, one
                yield f"sector {i} copied over {j}", b"".join(copied)
                if i < j:
                    yield f"sectors {i} and {j} exchanged", b"".join(swapped)


def garbage(data: bytes, rng: Random, n: int) -> Iterator[tuple[str, bytes]]:
    """Bytes behind the end: random, zero, ones, the file's own."""
    for _ in range(n):
        size = rng.randrange(1, 3000)
        yield f"{size} random bytes behind", data + rng.randbytes(size)
        yield f"{size} zeros behind", data + bytes(size)
        yield f"{size} ones behind", data + b"\xff" * size
        at = rng.randrange(len(data))
        yield f"its own bytes from {at} on behind", data + data[at : at + size]


# --- judgement ------------------------------------------------------------------------------


def open_damaged(image: Image, box: Path, options: LogOptions) -> Outcome:
    """Open a damaged log."""
    materialise(image, box)
    return reopen(box / "log", options)


def judge(rest: Rest, file: str, data: bytes, outcome: Outcome, *, exact: bool = True) -> list[str]:
    """Judge the opening of a log one of whose segments became `data`.

    A record whose bytes are untouched must be there, one that was touched must not, and each that
    is missing must be within what the log reports. With ``exact=False`` more may be missing.
    """
    if outcome.refused is not None:
        return [f"refused: {type(outcome.refused).__name__}: {outcome.refused}", *outcome.wrong]
    original = rest.bytes_of(file)
    intact = {
        serial
        for serial, (where, position, _) in rest.records.items()
        if where != file or _same(original, data, position)
    }
    replayed = set(outcome.replayed)
    wrong = list(outcome.wrong)
    if ghosts := replayed - intact:
        wrong.append(f"damaged and replayed: {sorted(ghosts)}")
    lost = intact - replayed
    if lost and exact:
        wrong.append(f"whole and not replayed: {sorted(lost)}")
    if len(replayed) != len(outcome.replayed) or outcome.replayed != sorted(outcome.replayed):
        wrong.append(f"replayed twice or out of order: {outcome.replayed}")
    missing = rest.records.keys() - replayed
    if expected := _unreported(rest, file, data, outcome, missing):
        wrong.append(f"missing and not reported: {expected}")
    if outcome.unreadable:
        wrong.append(f"alive and unreadable: {sorted(outcome.unreadable)}")
    return wrong + _misnamed(rest, outcome)


def _same(original: bytes, data: bytes, position: Position) -> bool:
    lo, hi = position.offset, position.offset + position.size
    return len(data) >= hi and data[lo:hi] == original[lo:hi]


def _unreported(rest: Rest, file: str, data: bytes, outcome: Outcome, missing: set[int]) -> list[int]:
    """Records that are missing and lie in nothing the log reports; those behind the file's end left no trace."""
    recovery = outcome.recovery
    assert recovery is not None
    spans = [(d.offset, d.offset + d.nbytes) for d in outcome.corrupt if Path(d.file).name == Path(file).name]
    spans.append((len(data) - recovery.torn_bytes, 1 << 60))
    spans.append((len(data), 1 << 60))
    spans = _merged(spans)
    out = []
    for serial in sorted(missing):
        where, position, _ = rest.records[serial]
        lo, hi = position.offset, min(position.offset + position.size, len(data))
        if where != file or not any(a <= lo and hi <= b for a, b in spans):
            out.append(serial)
    return out


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], stop))
        else:
            out.append((start, stop))
    return out


def _misnamed(rest: Rest, outcome: Outcome) -> list[str]:
    """What the log says of a damaged record whose header is whole must be what was written there."""
    written = {(Path(file).name, position.offset): entry for file, position, entry in rest.records.values()}
    wrong = []
    for damage in outcome.corrupt:
        entry = written.get((Path(damage.file).name, damage.offset))
        if damage.type is not None and entry is not None and damage.type != entry.type:
            wrong.append(f"named as type {damage.type}, is {entry.type}")
        if damage.type is not None and entry is not None and entry.added and entry.type == 16:
            named = (damage.base, damage.count)
            if named != (entry.added[0], len(entry.added)):
                wrong.append(f"named as {named}, is {entry.added}")
    return wrong
