"""Orders that come at the moment at which leases end and delays are over: the log tells both, each once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgpack import packb

from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.log.writer import LogOptions
from dqlab.rules.budget import SPENT
from dqlab.rules.retry import QueueOptions, Retry
from dqlab.rules.states import State, Verdict
from dqlab.rules.trouble import ONCE
from dqlab.store.checkpoint import freeze
from dqlab.store.durable_shard import DurableShard
from dqlab.store.journal import unpack_plain
from dqlab.testing import FakeClock
from tests.kit.sampled import examples

RUN = b"a-run-with-a-name"[:16]
TIMEOUT = 60.0
OPTIONS = QueueOptions(visibility_timeout=TIMEOUT, max_deliveries=2, retry=Retry(2, backoff=90.0, jitter=False))
CODE = {"hash": "1", "short": "1", "source": ""}
RECORD = {
    "name": "r",
    "codes": [CODE],
    "client": "c",
    "total": None,
    "incomplete": None,
    "submitted": 0,
    "digest": "",
    "started": 0.0,
}
NEW_CODE = {"function": b"n" * 16, "blob": b"new", "code": {"hash": "2", "short": "2", "source": ""}}
EVERYTHING = {"ids": [(0, 1 << 50)], "ordinals": [(0, 1 << 50)]}
ORDERS: dict[str, tuple[bytes | None, dict[str, Any]]] = {
    "open": (None, {"open": {"run": b"a-run-never-seen"}}),
    "seal": (None, {"seal": {"run": RUN, "here": 9, "total": 9}}),
    "pause": (RUN, {}),
    "pause all": (None, {}),
    "resume": (RUN, {}),
    "resume all": (None, {}),
    "drain": (None, {}),
    "cancel": (RUN, {}),
    "purge READY": (RUN, {"state": "READY"}),
    "purge DELAYED": (None, {"state": "DELAYED"}),
    "purge DEAD": (None, {"state": "DEAD"}),
    "retry": (RUN, EVERYTHING),
    "retry with code": (RUN, EVERYTHING | NEW_CODE),
    "adopt": (RUN, NEW_CODE),
    "retries": (RUN, {"retries": 7}),
    "reopen": (RUN, {"client": "d"}),
    "drop": (RUN, {}),
    "forget": (NO_ID, {"ids": [(0, 1 << 50)], "coming": True}),
    "halt": (RUN, {"halted": "all of it failed"}),
    "flow": (RUN, {"flow": {"most": 3}}),
    "judge": (RUN, {"marks": [[0, True], [1, None]]}),
    "submitted": (RUN, {"submitted": 3, "digest": "abc", "beyond": [[5, 7]], "end_digest": "abd"}),
}
"""Every order that the log has, each with what it is told; "why" is words for people, and not kept."""


class Store:
    """One durable shard, and what would be found in its directory after a crash."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.clock = directory, FakeClock(monotonic=1000)
        self.shard = self.open(directory / "q")
        self.ledger, self.rules = self.shard.ledger, self.shard.ledger.shard

    def open(self, directory: Path) -> DurableShard:
        return DurableShard.open(
            directory,
            "q",
            0,
            OPTIONS,
            log_options=LogOptions(sync="os", reserve_bytes=0),
            clock=self.clock,
            random=Random(0),
            patience=TIMEOUT,
        )

    def put(self, run: bytes, n: int) -> None:
        blob = Frame.encode([b"x"] * n, kind=Kind.ELEMENT, run=run, function=b"f" * 16, producer=run[:-1] + b"p")
        self.ledger.keep_function(run, b"f" * 16, b"code")
        assert self.rules.put(Frame.decode(blob)).verdict is Verdict.ACCEPTED

    def lease(self, n: int, *, early: bool = False) -> None:
        lease = self.rules.lease("c", n, slots=9)
        if lease is not None and lease.suspect:
            self.rules.isolate(lease.id)  # its end counts
        if lease is not None and early:
            self.ledger.begin(lease.id)
        self.ledger.note_ends()  # as the actor does behind every call

    def settle(self, outcome: Outcome) -> None:
        lease = self.rules.lease("c", 1, slots=9)
        if lease is not None:
            (piece,) = lease.pieces
            blob = Settlement.encode(
                [Piece(piece.frame + piece.lo, piece.ordinal, piece.n)],
                bytes([outcome]),
                [b"2" if outcome is Outcome.NACK else b"?"],
                run=lease.run,
                epoch=self.rules.epoch,
                lease=lease.id,
            )
            self.ledger.settle(Settlement.decode(blob))
        self.ledger.note_ends()

    def found(self, name: str, *, checkpoint: bool) -> Any:
        """Return what is found in a copy of the files: told by the log alone, or by a checkpoint of what is known."""
        log = self.shard.journal.log
        if checkpoint:
            self.shard.checkpoint()()
        log.commit()
        copy = shutil.copytree(self.directory / "q", self.directory / name)
        other = self.open(copy)
        state = unpack_plain(freeze(other.ledger)())
        other.journal.log.close(clean=False)
        state["producers"].sort()
        state["early"].sort()  # in the order of leases, which means nothing
        for lane in state.pop("lanes"):
            lane["states"] = [
                [first, states] for first, states in lane["states"] if any(states)
            ]  # all ready, as are others
            lane |= {f"book.{name}": part for name, part in (lane.pop("book") or {}).items()}
            state |= {f"{lane['run']!r}.{name}": part for name, part in lane.items()}
        return {name: part for name, part in state.items() if not name.endswith("book.started")}

    def check(self) -> None:
        """Compare what the log alone tells with what is known in memory, as a checkpoint keeps it."""
        told, known = self.found("by the log", checkpoint=False), self.found("by what is known", checkpoint=True)
        assert {name: (told.get(name), part) for name, part in known.items() if told.get(name) != part} == {}

    def close(self) -> None:
        self.shard.journal.log.close(clean=False)


@pytest.fixture
def store(in_memory: Path) -> Iterator[Store]:
    made = Store(in_memory)
    yield made
    made.close()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("lease"), st.integers(1, 3)),
        st.tuples(st.just("begin"), st.integers(1, 2)),
        st.tuples(st.just("settle"), st.sampled_from([*Outcome])),
        st.tuples(st.just("time"), st.sampled_from([1.0, TIMEOUT + 1, 100.0])),
        st.tuples(st.just("order"), st.sampled_from([*ORDERS])),
    ),
    max_size=12,
)


@pytest.mark.long
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(before=steps, late=st.sampled_from([TIMEOUT + 1, 100.0]), order=st.sampled_from([*ORDERS]))
@example(
    before=[("begin", 2), ("lease", 1), ("begin", 2), ("time", TIMEOUT + 1), ("order", "seal"), ("lease", 1)],
    late=TIMEOUT + 1,
    order="open",
)
def test_log_has_all_that_is_known_after_an_order(before: list[tuple[str, Any]], late: float, order: str) -> None:
    """A delivery that is counted, or a document that is dead, is so after a crash too."""
    directory = Path(tempfile.mkdtemp(prefix="dqlab-orders-"))
    store = Store(directory)
    try:
        store.ledger.obey("open", None, {"open": {"run": RUN, "record": dict(RECORD)}})
        store.put(RUN, 4)
        store.put(NO_ID, 2)
        for what, how in before:
            if what == "lease":
                store.lease(how)
            elif what == "begin":
                store.lease(how, early=True)
            elif what == "settle":
                store.settle(how)
            elif what == "time":
                store.clock.advance(how)
            elif RUN in store.ledger.books:
                obey(store, how)
        store.clock.advance(late)
        if RUN in store.ledger.books:
            obey(store, order)
        store.check()
    finally:
        store.close()
        shutil.rmtree(directory)


def obey(store: Store, order: str) -> None:
    run, meta = ORDERS[order]
    store.ledger.obey(order.split()[0], run, {**meta})
    store.ledger.note_ends()


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.REJECT, Outcome.NACK, Outcome.REFUSED])
def test_answers_and_costs_of_messages_without_a_result_are_found_again(outcome: Outcome, store: Store) -> None:
    """They were paid for. By the log alone, by a checkpoint, and by the next delivery."""
    store.ledger.obey("open", None, {"open": {"run": RUN, "record": dict(RECORD)}})
    store.put(RUN, 3)
    lease = store.rules.lease("c", 3, slots=9)
    assert lease is not None
    blob = Settlement.encode(
        [Piece(0, 0, 3)],
        bytes([Outcome.ACK, outcome, Outcome.ACK]),
        [b"", b"0", b""],
        run=RUN,
        epoch=store.rules.epoch,
        lease=lease.id,
        riders={ONCE: {1: b"an answer"}, SPENT: {0: packb({"eur": 1.0}), 1: packb({"eur": 0.5})}},
    )
    store.ledger.settle(Settlement.decode(blob))
    store.ledger.note_ends()

    store.check()
    assert store.rules.lanes[RUN].kept([(0, 9)]) == [(1, b"an answer")]
    assert store.ledger.book(RUN).spent["eur"] == 1.5


def test_a_limit_lets_nothing_more_through_because_its_shard_died(store: Store) -> None:
    """The one that takes over does not know what the last one let through just now, and begins with nothing."""
    flow = {"rates": [{"amount": 5.0, "period": 60.0}]}
    store.ledger.obey("open", None, {"open": {"run": RUN, "record": {**RECORD, "flow": flow}}})
    store.put(RUN, 30)
    began, rules, other = list[int](), store.rules, None
    for second in range(600):
        if second == 250:
            store.shard.journal.log.commit()
            other = store.open(shutil.copytree(store.directory / "q", store.directory / "copy"))
            rules = other.ledger.shard
        store.clock.advance(1.0)
        lease = rules.lease("c", 9)
        began += [] if lease is None else [second] * lease.remaining.size
    assert other is not None
    other.journal.log.close(clean=False)

    assert max(sum(at <= other < at + 60 for other in began) for at in began) <= 5
    assert len(began) >= 39, "one call of a minute is kept for what timers missed"


def test_draining_queue_whose_last_messages_had_been_acked_early_is_paused_when_it_opens(store: Store) -> None:
    """They end as dead when their consumers do not come back, and nothing else would look."""
    store.ledger.obey("open", None, {"open": {"run": RUN, "record": dict(RECORD)}})
    store.put(RUN, 3)
    store.lease(3, early=True)
    store.ledger.obey("drain", None, {})
    store.shard.journal.log.commit()
    copy = shutil.copytree(store.directory / "q", store.directory / "copy")
    other = DurableShard.open(copy, "q", 0, OPTIONS, log_options=LogOptions(sync="os", reserve_bytes=0), patience=0.0)
    rules = other.ledger.shard
    assert (rules.lanes[RUN].counts[State.DEAD], rules.paused) == (3, True)
    other.journal.log.close(clean=False)
