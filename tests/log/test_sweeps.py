"""Rotten bytes: every file of a log cut, flipped, zeroed, exchanged, spliced, and opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from dqlab.log.errors import CannotOpen, LogError
from dqlab.log.log import Log
from dqlab.log.records import RecordType
from tests.log.crash.damage import (
    Rest,
    at_rest,
    cuts,
    flips,
    garbage,
    judge,
    open_damaged,
    sectors,
)
from tests.log.crash.ledger import RESULTS
from tests.log.crash.recording import read_tree
from tests.log.crash.simulator import materialise
from tests.log.crash.workload import small_options

CASES = "sweep cases"
OPTIONS = small_options(segment_bytes=2500)
SEED, STEPS = 6, 26
EVERY_OFFSET = pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
"""Each one in `make test-slow`, each fifth before."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Rest:
    """A log of several segments without a checkpoint, whose owner died."""
    rest = at_rest(tmp_path_factory.mktemp("plain"), SEED, STEPS, OPTIONS, clean=False)
    assert len(rest.segments()) >= 3
    assert len(rest.bytes_of(rest.segments()[-1])) > 600
    return rest


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Rest:
    """A log with two checkpoints and records behind them, whose owner died."""
    return at_rest(tmp_path_factory.mktemp("checked"), 6, 25, OPTIONS, checkpoints=3, clean=False)


def sweep(
    rest: Rest, file: str, damages: Iterable[tuple[str, bytes]], box: Path, tally: Counter[str], *, exact: bool = True
) -> None:
    """Open a log with each damage to one of its segments."""
    wrong: list[str] = []
    cases = 0
    original = rest.bytes_of(file)
    for name, data in damages:
        if data == original:
            continue
        outcome = open_damaged(rest.with_file(file, data), box, rest.options)
        cases += 1
        if found := judge(rest, file, data, outcome, exact=exact):
            wrong.append(f"{Path(file).name}, {name}: {'; '.join(found)[:400]}")
    finish(wrong, cases, tally)


def finish(wrong: list[str], cases: int, tally: Counter[str]) -> None:
    tally[CASES] += cases
    tally["violations"] += len(wrong)
    assert not wrong, f"{len(wrong)} of {cases}:\n" + "\n".join(wrong[:12])
    assert cases


def last(rest: Rest) -> str:
    """The segment that was being written."""
    return rest.segments()[-1]


def sealed(rest: Rest) -> str:
    """A segment with others behind it."""
    return rest.segments()[1]


def newest(rest: Rest, start: str) -> str:
    """The newest file of a kind."""
    return max(name for name in rest.image if Path(name).name.startswith(start))


# --- segments -------------------------------------------------------------------------------


@pytest.mark.long
@EVERY_OFFSET
def test_a_torn_end_costs_the_torn_record_and_is_reported(
    step: int, plain: Rest, box: Path, tally: Counter[str]
) -> None:
    """The last segment, cut."""
    sweep(plain, last(plain), cuts(plain.bytes_of(last(plain)), step), box, tally)


@pytest.mark.long
@EVERY_OFFSET
def test_a_sealed_segment_that_became_shorter_is_reported(
    step: int, plain: Rest, box: Path, tally: Counter[str]
) -> None:
    """Behind a segment that others follow nothing was torn: its missing end is damage."""
    file = sealed(plain)
    original = plain.bytes_of(file)
    wrong = []
    cases = 0
    for name, data in cuts(original, step):
        outcome = open_damaged(plain.with_file(file, data), box, plain.options)
        cases += 1
        found = judge(plain, file, data, outcome)
        ends = [p.offset + p.size for f, p, _ in plain.records.values() if f == file]
        if max(ends) > len(data) and outcome.recovery is not None and not outcome.corrupt:
            found.append("records are gone and nothing is reported as corrupt")
        if found:
            wrong.append(f"{name}: {'; '.join(found)[:400]}")
    finish(wrong, cases, tally)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_costs_exactly_the_record_it_is_in(
    step: int, plain: Rest, box: Path, tally: Counter[str]
) -> None:
    """Each 31st bit of a segment: every fourth byte, and every bit of a byte in turn; or each bit of each segment."""
    for file in (last(plain), sealed(plain)) if step > 1 else plain.segments():
        sweep(plain, file, flips(plain.bytes_of(file), step), box, tally)


@pytest.mark.parametrize("which", ["last", "sealed"])
def test_misplaced_sectors_never_make_a_record(which: str, plain: Rest, box: Path, tally: Counter[str]) -> None:
    """Zero, copied over others, exchanged: what is there again or elsewhere does not count twice."""
    file = last(plain) if which == "last" else sealed(plain)
    sweep(plain, file, sectors(plain.bytes_of(file)), box, tally, exact=False)


def test_a_zero_sector_costs_exactly_the_records_in_it(plain: Rest, box: Path, tally: Counter[str]) -> None:
    """In the middle: what follows is found again."""
    for file in (last(plain), sealed(plain)):
        zeros = [(name, data) for name, data in sectors(plain.bytes_of(file)) if name.endswith("zero")]
        sweep(plain, file, zeros, box, tally)


@pytest.mark.long
def test_garbage_behind_the_end_is_not_read(plain: Rest, box: Path, tally: Counter[str]) -> None:
    """Stale blocks of other files, and of this one."""
    for file in (last(plain), sealed(plain)):
        sweep(plain, file, garbage(plain.bytes_of(file), Random(1), 40), box, tally)


def test_records_of_another_log_never_count(plain: Rest, box: Path, tmp_path: Path, tally: Counter[str]) -> None:
    """The same segment number, the same epoch, the same layout: only the log's own uuid differs."""
    other = at_rest(tmp_path, SEED, STEPS, OPTIONS, clean=False)
    rng = Random(2)
    for file in (last(plain), sealed(plain)):
        ours, theirs = plain.bytes_of(file), other.bytes_of(file)
        spliced = [("their records behind", ours + theirs[64:]), ("their file", theirs)]
        starts = [position.offset for where, position, _ in plain.records.values() if where == file]
        spliced += [(f"theirs from {at} on", ours[:at] + theirs[at:]) for at in starts]
        for _ in range(60):
            lo = rng.randrange(64, len(ours))
            hi = rng.randrange(lo, len(ours))
            spliced.append((f"theirs from {lo} to {hi}", ours[:lo] + theirs[lo:hi] + ours[hi:]))
        sweep(plain, file, spliced, box, tally)


# --- checkpoints ----------------------------------------------------------------------------


def checkpoint_sweep(
    rest: Rest, file: str, damages: Iterable[tuple[str, bytes]], box: Path, tally: Counter[str]
) -> None:
    """Damage one of two checkpoints: the other one, and the records behind it, hold the same."""
    wrong = []
    cases = 0
    for name, data in damages:
        outcome = open_damaged(rest.with_file(file, data), box, rest.options)
        cases += 1
        found = list(outcome.wrong)
        if outcome.refused is not None:
            found.append(f"refused: {outcome.refused}")
        elif outcome.live != rest.live:
            found.append(f"alive in only one: {sorted(outcome.live ^ rest.live)}")
        if outcome.unreadable:
            found.append(f"unreadable: {sorted(outcome.unreadable)}")
        if found:
            wrong.append(f"{Path(file).name}, {name}: {'; '.join(found)[:400]}")
    finish(wrong, cases, tally)


@pytest.mark.long
@pytest.mark.parametrize(
    ("which", "step"), [("newest", 3), ("older", 11), pytest.param("newest", 1, marks=pytest.mark.slow)]
)
def test_a_damaged_checkpoint_costs_nothing(
    which: str, step: int, checked: Rest, box: Path, tally: Counter[str]
) -> None:
    """Cut at each `step`-th offset, each bit in turn."""
    files = sorted(name for name in checked.image if Path(name).name.startswith("ckpt-"))
    assert len(files) == 2
    file = files[-1] if which == "newest" else files[0]
    data = checked.bytes_of(file)
    checkpoint_sweep(checked, file, cuts(data, step), box, tally)
    checkpoint_sweep(checked, file, flips(data, 7 * step), box, tally)


def test_with_both_checkpoints_damaged_the_log_says_so_and_loses_nothing(
    checked: Rest, box: Path, tally: Counter[str]
) -> None:
    """Everything is replayed; what was settled in collected segments may come back, and the report says why."""
    files = sorted(name for name in checked.image if Path(name).name.startswith("ckpt-"))
    wrong = []
    cases = 0
    for at in range(0, min(len(checked.bytes_of(file)) for file in files), 3):
        image = dict(checked.image)
        for file in files:
            data = bytearray(checked.bytes_of(file))
            data[at] ^= 0x10
            image[file] = bytes(data)
        outcome = open_damaged(image, box, checked.options)
        cases += 1
        if outcome.refused is not None:
            wrong.append(f"byte {at}: refused: {outcome.refused}")
        elif not outcome.recovery or not outcome.recovery.checkpoint_lost:
            wrong.append(f"byte {at}: not reported")
        elif missing := {id for id in checked.live if id < RESULTS} - outcome.live:
            wrong.append(f"byte {at}: gone: {sorted(missing)}")
    finish(wrong, cases, tally)


# --- manifest and other files ---------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["cut", "flipped", pytest.param("each bit", marks=pytest.mark.slow)])
def test_a_damaged_manifest_is_refused_and_nothing_is_deleted(
    how: str, checked: Rest, box: Path, tally: Counter[str]
) -> None:
    """Damaged metadata never justifies an empty start: put it back and everything is there."""
    file = newest(checked, "MANIFEST-")
    data = checked.bytes_of(file)
    manifest_sweep(checked, cuts(data) if how == "cut" else flips(data, 7 if how == "flipped" else 1), box, tally)
    again = open_damaged(checked.with_file(file, data), box, checked.options)
    assert again.live == checked.live


def manifest_sweep(checked: Rest, damages: Iterable[tuple[str, bytes]], box: Path, tally: Counter[str]) -> None:
    """Damage the manifest: refused by an error of ours, all other files as they were."""
    file = newest(checked, "MANIFEST-")
    wrong = []
    cases = 0
    for name, damaged in damages:
        outcome = open_damaged(checked.with_file(file, damaged), box, checked.options)
        cases += 1
        if outcome.refused is None:
            if outcome.live != checked.live or outcome.wrong:
                wrong.append(f"{name}: opened with something else in it {outcome.wrong}")
            continue
        if not isinstance(outcome.refused, LogError):
            wrong.append(f"{name}: {type(outcome.refused).__name__}: {outcome.refused}")
        left = read_tree(box)
        if gone := [path for path, old in checked.image.items() if path != file and left.get(path) != old]:
            changed = [path for path in gone if not path.endswith("/LOCK")]
            if changed:
                wrong.append(f"{name}: refused, and these were changed: {changed}")
    finish(wrong, cases, tally)


def test_a_missing_segment_is_refused_and_nothing_is_deleted(checked: Rest, box: Path) -> None:
    """Each file that the manifest lists."""
    for file in (name for name in checked.image if name.endswith(".seg")):
        outcome = open_damaged(checked.with_file(file, None), box, checked.options)

        if outcome.refused is None:
            assert file == max(name for name in checked.image if name.endswith(".seg"))
            continue
        assert isinstance(outcome.refused, CannotOpen)
        left = read_tree(box)
        assert all(path in left for path in checked.image if path != file)


@pytest.mark.long
def test_rot_in_a_lock_or_an_epoch_file_costs_nothing(checked: Rest, box: Path, tally: Counter[str]) -> None:
    """Their names count; what is in them is for people."""
    files = [name for name in checked.image if Path(name).name.startswith(("LOCK", "EPOCH-"))]
    for file in files:
        data = checked.bytes_of(file) or b"x"
        damages = [*cuts(data), *flips(data, 3), ("junk", b"\xff\xfe{"), ("nothing", b"")]
        checkpoint_sweep(checked, file, damages, box, tally)


@pytest.mark.long
@pytest.mark.parametrize("step", [111, pytest.param(37, marks=pytest.mark.slow)])
def test_rot_before_the_checkpoint_shows_when_it_is_read(
    step: int, checked: Rest, box: Path, tally: Counter[str]
) -> None:
    """Old segments are not read at open: a damaged record there fails its reader, by name, and no other."""
    behind = {file for file, _, _ in checked.records.values()}
    files = [name for name in checked.image if name.endswith(".seg") and name not in behind]
    assert files
    wrong = []
    cases = 0
    unreadable = 0
    for file in files:
        for name, data in flips(checked.bytes_of(file), step):
            outcome = open_damaged(checked.with_file(file, data), box, checked.options)
            cases += 1
            unreadable += bool(outcome.unreadable)
            found = list(outcome.wrong)
            if outcome.refused is not None:
                found.append(f"refused: {outcome.refused}")
            elif outcome.live != checked.live - outcome.named_lost:
                found.append(f"alive in only one: {sorted(outcome.live ^ checked.live)}")
            if found:
                wrong.append(f"{Path(file).name}, {name}: {'; '.join(found)[:400]}")
    finish(wrong, cases, tally)
    assert unreadable


def test_a_record_inside_a_payload_never_counts(box: Path) -> None:
    """A message holds the bytes of this log, and the record around them is damaged."""
    log = Log.open(box / "log", options=OPTIONS)
    first = log.append(RecordType.PUT, [b"first"], count=1, base=1)
    log.commit()
    [segment] = (box / "log").glob(f"{first.segment:010d}-*.seg")
    stolen = segment.read_bytes()
    around = log.append(RecordType.PUT, [b"-" * 7, stolen, b"-" * 9, stolen[64:]], count=1, base=2)
    log.append(RecordType.PUT, [b"third"], count=1, base=3)
    log.commit()
    log.close(clean=False)
    whole = read_tree(box)
    file = f"log/{segment.name}"
    data = whole[file]
    assert data is not None

    for at in range(around.offset, around.offset + 48 + 7):
        changed = bytearray(data)
        changed[at] ^= 0x40
        materialise(whole | {file: bytes(changed)}, box)
        log = Log.open(box / "log", options=OPTIONS)
        assert [record.base for record in log.replay()] == [1, 3], f"byte {at}"
        assert log.corrupt
        log.close(clean=False)
