"""Each public call of a log, while each of its file calls in turn fails for a moment; then everything is there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from dqlab.errors import DqlabError
from dqlab.log.errors import CannotOpen, DiskFailed, LogError, ManifestCorrupt, RecordCorrupt
from dqlab.log.files import Files
from dqlab.log.log import Log
from tests.kit.descriptors import count_files
from tests.kit.disks import ERRNOS, no
from tests.kit.sampled import mostly_slow
from tests.log.crash.faults import CountingFiles
from tests.log.crash.invariants import check, reopen
from tests.log.crash.ledger import RESULTS, Ledger
from tests.log.crash.recording import read_tree
from tests.log.crash.simulator import clear, materialise
from tests.log.crash.workload import small_options

OPTIONS = small_options(segment_bytes=2048)
WINDOWS = (1, 2, 1 << 30)
"""Calls that fail, one after the other; the last number is until the operation ends."""
UNTRUE = (CannotOpen, ManifestCorrupt, RecordCorrupt)
"""What no disk that fails for a moment makes true."""
_OTHER_REASONS = ("[Errno 24]", "[Errno 28]", "[Errno 122]")


def read_all(ledger: Ledger) -> None:
    for chunk in ledger.distinct():
        assert ledger.read(chunk) == chunk.body()


def settle(ledger: Ledger) -> None:
    messages = sorted(id for id in ledger.live if id < RESULTS)
    for id in messages[: 2 * len(messages) // 3]:
        ledger.settle(id, 1, result=id % 5 == 0)


def commit(ledger: Ledger) -> None:
    ledger.log.commit()


def put_and_commit(ledger: Ledger) -> None:
    for count in (3, 40, 12):
        ledger.put(count)
        ledger.log.commit()


def rest(ledger: Ledger) -> None:
    ledger.log.note_synced()
    ledger.log.sync()


OPERATIONS: dict[str, Callable[[Ledger], object]] = {
    "commit": put_and_commit,
    "rest": rest,
    "roll": lambda ledger: ledger.log.roll(),
    "read": read_all,
    "two checkpoints": lambda ledger: (Ledger.checkpoint(ledger), Ledger.checkpoint(ledger)),
    "compact": Ledger.compact,
    "close": lambda ledger: ledger.log.close(),
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    """A log that was closed, and one whose owner died: each with two checkpoints, and collected segments."""
    made = []
    for clean in (True, False):
        root = tmp_path_factory.mktemp("life")
        log = Log.open(root / "log", options=OPTIONS)
        ledger = Ledger(log)
        for _ in range(3):
            put_and_commit(ledger)
            settle(ledger)
            commit(ledger)
            ledger.checkpoint()
        put_and_commit(ledger)
        assert "0000000001-0000000001.seg" not in {file.name for file in log.directory.iterdir()}
        log.close(clean=clean)
        made.append(read_tree(root))
    return made


class Life:
    """An operation on a log whose disk fails during some of its calls."""

    def __init__(self, image: dict[str, bytes], box: Path) -> None:
        clear(box)
        materialise(image, box)
        self.path = box / "log"
        self.files = CountingFiles(self._before)
        self.failing, self.number = range(0), "EIO"
        self.wrong: list[str] = []
        self.calls: list[str] = []

    def _before(self, n: int, call: str, arguments: object) -> None:
        if n - self.files.begun in self.failing:
            raise no(self.number)

    def during(self, operation: Callable[[], object], number: str, failing: range) -> bool:
        """Run an operation; return whether it worked."""
        self.files.begin()
        self.number, self.failing = number, failing
        try:
            operation()
        except LogError as error:
            self._judge(error)
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is belongs into the verdict
            self.wrong.append(f"not an error of ours: {type(error).__name__}: {error}")
            return False
        finally:
            self.failing = range(0)
            self.calls = self.files.calls[self.files.begun :]
        return True

    def _judge(self, error: LogError) -> None:
        if isinstance(error, UNTRUE) or not error.passing:
            self.wrong.append(f"untrue: {type(error).__name__}: {error}")
        if isinstance(error, DiskFailed) and any(reason in str(error) for reason in _OTHER_REASONS):
            self.wrong.append(f"another reason: {error}")

    def opened(self, files: Files | None = None) -> Ledger:
        return Ledger(Log.open(self.path, options=OPTIONS, files=files))

    def go_on(self, ledger: Ledger) -> None:
        """The disk is well again: an open log works as before, unless it has refused all that comes."""
        if ledger.log.refusal is None:
            read_all(ledger)
            ledger.put(2)
            commit(ledger)
            if ledger.confirmed() != ledger.history.issued:
                self.wrong.append("a healthy disk, and not everything is confirmed")
        ledger.log.close(clean=False)

    def judge(self, ledger: Ledger, confirmed: int) -> None:
        """Open it with a healthy disk."""
        outcome = reopen(self.path, OPTIONS)
        self.wrong += check(outcome, ledger.history, confirmed, ledger.history.issued)
        recovery = outcome.recovery
        if recovery is not None and (outcome.corrupt or recovery.checkpoint_lost):
            self.wrong.append(f"reported as damaged: {outcome.corrupt}")


def live(image: dict[str, bytes], box: Path, name: str, number: str, failing: range) -> Life:
    """Open a log, have it do something while its disk fails, go on, open it again."""
    life = Life(image, box)
    if name == "open":
        before = life.opened()
        before.log.close(clean=False)
        clear(box)
        materialise(image, box)
        opened: list[Log] = []

        def reopened() -> None:
            opened.append(Log.open(life.path, options=OPTIONS, files=life.files))
            Ledger(opened[0])

        life.during(reopened, number, failing)
        for log in opened:
            log.close(clean=False)
        life.judge(before, before.history.issued)
        return life
    ledger = life.opened(life.files)
    if name in ("roll", "close", "rest", "two checkpoints"):
        ledger.put(5)
    if name == "read":
        ledger.log.close(clean=False)
        ledger = life.opened(life.files)
    if name == "compact":
        settle(ledger)
        commit(ledger)
    life.during(lambda: OPERATIONS[name](ledger), number, failing)
    confirmed = ledger.confirmed()
    try:
        life.go_on(ledger)
    except DqlabError as error:
        life.wrong.append(f"a healthy disk, and {type(error).__name__}: {error}")
    life.judge(ledger, confirmed)
    return life


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", mostly_slow(["open", *OPERATIONS], "open", "read", "commit", "compact"))
def test_a_disk_that_fails_for_a_moment_loses_nothing(
    name: str, every: bool, images: list[dict[str, bytes]], box: Path
) -> None:
    """Each error is one of ours, and true; what was confirmed is there when the disk is well."""
    wrong: list[str] = []
    cases = 0
    for clean, image in zip((True, False), images, strict=True):
        for at, call in enumerate(live(image, box, name, "EIO", range(0)).calls):
            some = [(ERRNOS[(at + window + clean) % len(ERRNOS)], window) for window in WINDOWS[1:]]
            for number, window in product(ERRNOS, WINDOWS) if every else some:
                cases += 1
                found = live(image, box, name, number, range(at, at + window)).wrong
                if found:
                    wrong.append(f"{clean=} {number} at {at} ({call}), {window}: {'; '.join(found)[:400]}")
    assert not wrong, f"{len(wrong)} of {cases}:\n" + "\n".join(wrong[:12])
    assert cases
    assert count_files(box) == 0, "files were left open"
