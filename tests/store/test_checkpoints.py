"""A checkpoint costs what has changed since the last one: a lab keeps thousands of runs that have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dqlab.frame import NO_ID, Outcome
from dqlab.rules import result_index
from dqlab.rules.result_index import Stretch
from dqlab.rules.shard import Shard
from dqlab.store import checkpoint as checkpoints
from dqlab.store.checkpoint import AT_ONCE, freeze
from dqlab.store.durable_shard import MOSTLY, compaction, run_through
from dqlab.store.journal import unpack_plain
from tests.store.test_functions import Desk, function, run_of

MANY = 120


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "log")
    yield desk
    desk.durable.journal.log.close()


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Runs of the lanes that were copied, for a test to read and clear."""
    runs: list[bytes] = []
    copy = checkpoints._freeze_lane

    def note(lane: Any, book: Any, shard: Shard, *, reuse: bool) -> Any:
        runs.append(lane.run)
        return copy(lane, book, shard, reuse=reuse)

    monkeypatch.setattr(checkpoints, "_freeze_lane", note)
    return runs


def end(desk: Desk, *numbers: int, outcome: Outcome = Outcome.ACK) -> None:
    for number in numbers:
        desk.start(run_of(number), number)
        desk.put(run_of(number), number)
        desk.seal(run_of(number))
        desk.work(outcome)


def body(desk: Desk, *, reuse: bool) -> dict[bytes, Any]:
    return {lane["run"]: lane for lane in unpack_plain(freeze(desk.ledger, reuse=reuse)())["lanes"]}


def test_a_checkpoint_copies_the_lanes_that_have_changed(desk: Desk, copied: list[bytes]) -> None:
    """10,000 ended runs once stopped a shard's event loop for seconds, every five seconds."""
    end(desk, *range(MANY))
    desk.durable.checkpoint()()
    assert len(copied) == MANY + 1
    copied.clear()

    desk.durable.checkpoint()()
    assert copied == []
    desk.put(NO_ID, 5000)
    end(desk, MANY)
    desk.durable.checkpoint()()
    assert set(copied) == {NO_ID, run_of(MANY)}


def retry(desk: Desk) -> None:
    code = {"name": "f", "hash": "2", "short": "", "source": "", "cell": None, "blob": function(2)}
    ids = list(desk.ledger.shard.lanes[run_of(1)].dead)
    meta = {"ids": ids, "ordinals": [], "function": function(2), "blob": bytes(100), "code": code}
    desk.order("retry", run_of(1), meta)


def forget(desk: Desk) -> None:
    desk.order("forget", run_of(0), {"ids": [[0, 2]]})


def move(desk: Desk) -> None:
    run_through(compaction(desk.durable, below=MOSTLY))


CHANGES: dict[str, Callable[[Desk], Any]] = {
    "retry": retry,
    "forget": forget,
    "drop": lambda desk: desk.order("drop", run_of(0), {}),
    "pause": lambda desk: desk.order("pause", run_of(1), {}),
    "pause at the rules": lambda desk: desk.ledger.shard.pause(run_of(1)),
    "retries": lambda desk: desk.order("retries", run_of(1), {"retries": 7}),
    "submitted": lambda desk: desk.order("submitted", run_of(0), {"submitted": 9, "digest": "d", "beyond": [[11, 12]]}),
    "reopen": lambda desk: desk.order("reopen", run_of(0), {"client": "another", "producer": b"another-producer"}),
    "purge": lambda desk: desk.order("purge", None, {"state": "DEAD"}),
    "halt": lambda desk: desk.order("halt", run_of(1), {"halted": "all failed"}),
    "flow": lambda desk: desk.order("flow", run_of(1), {"flow": {"most": 3}}),
    "judge": lambda desk: desk.order("judge", run_of(1), {"marks": [[0, True], [1, None]]}),
    "why": lambda desk: desk.order("why", run_of(0), {"why": "somebody said so"}),
    "adopt": lambda desk: desk.ledger.shard.adopt(run_of(1), function(3)),
    "lose": lambda desk: desk.ledger.lose(run_of(1), [(0, 1 << 40)]),
    "compaction": move,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_a_run_that_has_ended_is_in_the_next_checkpoint(desk: Desk, change: str) -> None:
    """Else it would be undone by the next restart."""
    end(desk, 0)
    end(desk, 1, outcome=Outcome.FAIL)
    end(desk, *range(2, 12))
    for number in range(2, 12):
        desk.order("drop", run_of(number), {})
    desk.durable.checkpoint()()
    before = body(desk, reuse=True)

    CHANGES[change](desk)

    after = body(desk, reuse=True)
    assert after == body(desk, reuse=False)
    assert after != before


@pytest.mark.parametrize("checkpoint", [True, False])
def test_what_goes_on_with_a_run_alone_seals_it_also_after_a_restart(desk: Desk, *, checkpoint: bool) -> None:
    """A submission that was cut off earlier may report its end as late as that."""
    end(desk, 0)
    desk.order("reopen", run_of(0), {"client": "another", "producer": b"goes-on-with-it."})
    desk.reopen(checkpoint=checkpoint)
    for by, sealed in ((b"was-cut-off-....", False), (b"goes-on-with-it.", True)):
        desk.order("seal", None, {"seal": {"run": run_of(0), "here": 1, "total": 1, "incomplete": None, "by": by}})
        assert desk.ledger.books[run_of(0)].lane.sealed == sealed


def test_thousands_of_lanes_at_rest_are_copied_in_slices(desk: Desk, copied: list[bytes]) -> None:
    """After a restart or a compaction all of them are new to the checkpoint; others go on between the slices."""
    end(desk, *range(MANY))
    desk.reopen(checkpoint=True)
    copied.clear()
    slices = []
    for step in desk.durable.checkpointing():
        slices.append(len(copied))
        copied.clear()
        if len(slices) == 1:
            desk.order("why", run_of(0), {"why": "said meanwhile"})
        step()

    assert max(slices) <= AT_ONCE
    assert sum(slices) == MANY + 1 + 1, "and the one that has changed meanwhile"
    desk.reopen(checkpoint=False)
    assert desk.ledger.books[run_of(0)].why == "said meanwhile"
    assert len(desk.ledger.books) == MANY + 1


def test_of_a_run_that_goes_on_the_results_are_copied_that_have_come_since(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million of one document each stopped the event loop for 0.15 s at each checkpoint, and Python for 0.9 s."""
    monkeypatch.setattr(result_index, "BLOCK", 8)
    packed: list[int] = []
    pack = checkpoints._pack_results

    def note(stretches: Sequence[Stretch]) -> Any:
        packed.append(len(stretches))
        return pack(stretches)

    monkeypatch.setattr(checkpoints, "_pack_results", note)
    run = run_of(1)
    desk.start(run, 1)
    for _ in range(40):
        desk.put(run, 1, n=1)
        desk.work()
    desk.put(run, 1, n=1)  # it goes on
    desk.durable.checkpoint()()
    assert packed == [8] * 5
    packed.clear()

    desk.work()
    desk.put(run, 1, n=2)
    desk.order("forget", run, {"ids": [[10, 11]]})
    desk.durable.checkpoint()()
    assert packed == [7, 1]
    assert body(desk, reuse=True) == body(desk, reuse=False)
    desk.reopen(checkpoint=False)
    assert list(desk.ledger.books[run].results.covered) == [(0, 10), (11, 41)]


def test_a_lane_that_changes_while_it_is_packed_is_copied_by_the_next_checkpoint(desk: Desk) -> None:
    """Packing goes on in a thread, beside the traffic."""
    end(desk, 0)
    pack = desk.durable.checkpoint()
    desk.order("why", run_of(0), {"why": "said meanwhile"})
    pack()

    assert body(desk, reuse=True)[run_of(0)]["book"]["why"] == "said meanwhile"


def test_the_format_page_names_each_field_of_a_checkpoint(desk: Desk) -> None:
    """A reader of another language has nothing else."""
    end(desk, 1)
    page = (Path(__file__).parents[2] / "docs/reference/log-format.md").read_text()
    whole = unpack_plain(freeze(desk.ledger)())
    lane = whole["lanes"][-1]
    fields = {*whole, *lane, *lane["book"]}
    assert {field for field in fields if f"`{field}`" not in page} == set()
