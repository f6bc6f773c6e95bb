"""The operating system says no, once or for ever, at each call of a log's life in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dqlab.errors import DqlabError
from dqlab.log.errors import LogFailed
from dqlab.log.files import Files
from dqlab.log.log import Log
from tests.kit.descriptors import none_left_open
from tests.log.crash.faults import FAULTS, CountingFiles, FaultyFiles
from tests.log.crash.invariants import check, reopen
from tests.log.crash.ledger import RESULTS, History, Ledger
from tests.log.crash.simulator import clear
from tests.log.crash.workload import SMALL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class Life:
    """What a log went through."""

    directory: Path
    files: Files
    history: History = field(default_factory=History)
    confirmed: int = 0
    errors: list[DqlabError] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    log: Log | None = None
    ledger: Ledger | None = None

    @contextmanager
    def allowed_to_fail(self, what: str) -> Iterator[None]:
        """Errors of ours are noted; others are defects."""
        try:
            yield
        except DqlabError as error:
            self.errors.append(error)
        except Exception as error:  # noqa: BLE001 - whatever it is belongs into the verdict
            self.wrong.append(f"{what}: {type(error).__name__}: {error}")
        if self.ledger is not None:
            self.confirmed = max(self.confirmed, self.ledger.confirmed())

    def open(self) -> None:
        """Open and replay; once more when that failed."""
        for _ in range(2):
            with self.allowed_to_fail("open"):
                self.log = Log.open(self.directory, options=SMALL, files=self.files)
                self.ledger = Ledger(self.log)
                self._continue(self.ledger)
                return
            self.close()

    def _continue(self, ledger: Ledger) -> None:
        """The ledger's own history is new; what is alive in it must have been in the old one."""
        self.wrong += check_session(ledger, self.history, self.confirmed)
        self.history, self.confirmed = ledger.history, ledger.history.issued

    def act(self, what: str, do: Callable[[Ledger], object]) -> None:
        """Do something with the ledger, if there is one."""
        ledger = self.ledger
        if ledger is not None:
            with self.allowed_to_fail(what):
                do(ledger)

    def close(self) -> None:
        """Close what is open."""
        log, self.log = self.log, None
        if log is not None:
            with self.allowed_to_fail("close"):
                log.close()
        self.ledger = None


def check_session(ledger: Ledger, history: History, confirmed: int) -> list[str]:
    """What a reopened ledger must hold."""
    wrong = []
    if missing := history.must_live(confirmed, history.issued) - ledger.live:
        wrong.append(f"I1: confirmed and gone: {sorted(missing)}")
    if back := ledger.live - history.may_live(confirmed, history.issued):
        wrong.append(f"I2: back or invented: {sorted(back)}")
    return wrong


def read_all(ledger: Ledger) -> None:
    for chunk in ledger.distinct():
        assert ledger.read(chunk) == chunk.body()


def settle_some(ledger: Ledger) -> None:
    messages = sorted(id for id in ledger.live if id < RESULTS)
    for id in messages[: 2 * len(messages) // 3]:
        ledger.settle(id, 1, result=id % 5 == 0)


def live_a_life(directory: Path, files: Files) -> Life:
    """A short life with everything in it: rolls, a checkpoint, compaction, collection, two openings."""
    life = Life(directory, files)
    life.open()
    for _ in range(2):
        for _ in range(3):
            for count in (1, 12, 8):
                life.act("put", lambda ledger, n=count: ledger.put(n))  # type: ignore[misc]
            life.act("commit", lambda ledger: ledger.log.commit())
        life.act("read", read_all)
        life.act("settle", settle_some)
        life.act("commit", lambda ledger: ledger.log.commit())
        life.act("checkpoint", Ledger.checkpoint)
        life.act("compact", Ledger.compact)
        life.act("put", lambda ledger: ledger.put(3))
        life.act("checkpoint", Ledger.checkpoint)
        life.act("collect", lambda ledger: ledger.log.collect())
        life.act("sync", lambda ledger: ledger.log.sync())
        life.act("put", lambda ledger: ledger.put(2))
        life.close()
        life.open()
    life.act("read", read_all)
    life.act("put", lambda ledger: ledger.put(2))
    life.act("commit", lambda ledger: ledger.log.commit())
    life.close()
    return life


def judge(life: Life, directory: Path) -> list[str]:
    """Reopen with a healthy operating system; everything confirmed is there."""
    outcome = reopen(directory, SMALL)
    return life.wrong + check(outcome, life.history, life.confirmed, life.history.issued)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The calls of a life in which nothing fails."""
    memory = Path("/dev/shm")
    files = CountingFiles()
    with TemporaryDirectory(
        prefix="dqlab-", dir=memory if memory.is_dir() else tmp_path_factory.getbasetemp()
    ) as place:
        (Path(place) / "box").mkdir()  # as deep as the boxes of the lives below: each level above is looked at
        life = live_a_life(Path(place) / "box" / "log", files)
    assert not life.errors
    assert not life.wrong
    return files.calls


def run_faults(calls: list[str], box: Path, tally: Counter[str], part: int, parts: int, *, lasting: bool) -> None:
    """Inject each fault of each call (a share of them) and judge each life."""
    wrong: list[str] = []
    n_cases = 0
    # A write that is interrupted for ever exists nowhere; it is tried again for ever.
    cases = [(n, fault) for n, call in enumerate(calls) for fault in FAULTS[call] if not (lasting and fault == "EINTR")]
    with none_left_open():
        for n, fault in cases[part::parts]:
            clear(box)
            files = FaultyFiles(n, fault, lasting=lasting)
            life = live_a_life(box / "log", files)
            found = judge(life, box / "log")
            n_cases += 1
            if found:
                wrong.append(f"{fault} at call {n} ({files.struck}): {'; '.join(found)[:500]}")
    tally["injected faults"] += n_cases
    tally["violations"] += len(wrong)
    assert not wrong, f"{len(wrong)} of {n_cases}:\n" + "\n".join(wrong[:12])


PARTS = 4
SHARES = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))]


@pytest.mark.parametrize("part", SHARES)
def test_a_call_that_fails_once_never_loses_what_was_confirmed(
    part: int, calls: list[str], box: Path, tally: Counter[str]
) -> None:
    """Only errors of ours come out, nothing that is not durable is confirmed, and the log opens afterwards."""
    run_faults(calls, box, tally, part, PARTS, lasting=False)


@pytest.mark.parametrize("part", SHARES)
def test_a_call_that_fails_from_now_on_never_loses_what_was_confirmed(
    part: int, calls: list[str], box: Path, tally: Counter[str]
) -> None:
    """A full disk, a dead device."""
    run_faults(calls, box, tally, part, PARTS, lasting=True)


# --- what goes on ---------------------------------------------------------------------------


def put_and_commit(directory: Path, files: CountingFiles, n: int = 12) -> tuple[Ledger, list[DqlabError]]:
    """A log that only takes puts, each committed; calls count from its opening on."""
    files.begun = 1 << 30
    ledger = Ledger(Log.open(directory, options=SMALL, files=files))
    files.begin()
    errors: list[DqlabError] = []
    for count in range(1, n + 1):
        try:
            ledger.put(count)
            ledger.log.commit()
        except DqlabError as error:
            errors.append(error)
    return ledger, errors


def commit_calls(directory: Path) -> list[tuple[int, str]]:
    """The numbers of the calls that writing makes, with their names."""
    files = CountingFiles()
    ledger, _ = put_and_commit(directory, files)
    made = files.calls[files.begun :]
    ledger.log.close(clean=False)
    clear(directory.parent)
    return [(n, call) for n, call in enumerate(made) if call in ("write", "sync")]


def test_a_device_that_never_syncs_again_fails_the_log_for_good(box: Path) -> None:
    """An error once and silence afterwards would be a confirmation."""
    directory = box / "log"
    n = next(n for n, call in commit_calls(directory) if call == "sync")

    ledger, errors = put_and_commit(directory, FaultyFiles(n, "EIO", lasting=True))

    assert len(errors) == 1 or all(isinstance(error, LogFailed) for error in errors)
    assert errors
    assert ledger.confirmed() == 0
    for attempt in (ledger.log.commit, ledger.log.sync, lambda: ledger.put(1), ledger.checkpoint):
        with pytest.raises(LogFailed):
            attempt()
    history, issued = ledger.history, ledger.history.issued
    ledger.log.close(clean=False)
    assert not check(reopen(directory, SMALL), history, 0, issued)
