"""Which documents that were refused fail, and which pause their run."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.consumer import refusals as module
from dqlab.cluster.consumer.refusals import Refusals
from dqlab.cluster.consumer.running.chunk import Chunk, Columns, Lease
from dqlab.cluster.consumer.running.execution import Origin, Work, run_calls
from dqlab.cluster.transport.reports import ShardProgress
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.documents import Labelled
from dqlab.documents import storage as reading
from dqlab.documents.storage import note_read
from dqlab.frame import Frame, Kind, Outcome, Settlement
from dqlab.rules.reports import LaneReport
from dqlab.rules.states import State
from dqlab.stats.counts import StopReason
from tests.cluster.consumer.test_slots import settling_at

ORIGIN = Origin("consumer/q/0", "w", 1 << 30)
GOOD = "s3://b/good.txt"
RUN = b"r" * 16


def refused(doc: dq.Document) -> str:
    raise PermissionError(f"403 {doc.where}")


class Shard:
    """Notes why a run is paused."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    async def call(self, function: str, body: bytes, /) -> bytes:
        meta, _ = unpack(body)
        if function == "watch":
            halted = self.reasons[-1] if self.reasons else ""
            halt = StopReason.ALL_FAILED if halted.startswith("all of") else StopReason.REFUSED
            lane = LaneReport(run=RUN.hex(), counts=[0] * len(State), halted=halted, halt=halt)
            return pack(ShardProgress(lane=lane, done=False).to_wire())
        assert (function, meta["op"], meta["run"]) == ("control", "halt", RUN)
        self.reasons.append(meta["halted"])
        return pack({"count": 0})


class Bench:
    """A consumer, a shard, and a storage that refuses some of its files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed = {GOOD, *(f"s3://b/{at}.txt" for at in range(3))}
        self.tried: list[str] = []
        self.shard = Shard()
        self.refusals = Refusals(ORIGIN.consumer, "here")
        monkeypatch.setattr(module, "refuses", self._refuses)
        monkeypatch.setattr(reading, "_read", {})
        monkeypatch.setattr(reading, "_latest", "")

    def _refuses(self, where: str) -> str:
        self.tried.append(where)
        return "403 Forbidden" if where in self.closed else ""

    def chunk(
        self,
        fn: Callable[[Any], Any] = refused,
        *,
        where: Sequence[str] = ("s3://b",) * 3,
        first: int = 1,
        run: bytes = RUN,
        early: bool = False,
        process: bool = False,
        labelled: bool = False,
    ) -> Chunk:
        """Run a function over three documents, or over as many as there are folders."""
        documents = [dq.Document(f"{at}.txt", "", f"{folder}/{at}.txt") for at, folder in enumerate(where)]
        sent = [Labelled(f"paper {each.key}", each) if labelled else each for each in documents]
        payloads = [pickle.dumps(each, 5) for each in sent]
        frame = Frame.decode(Frame.encode(payloads, kind=Kind.ELEMENT, run=run, ordinal=0))
        chunk = Chunk(Lease(0, 1, 1, 60.0, {"timeout": None} if process else None), [first], [frame])
        chunk.early = early
        run_calls(chunk, Work(fn), ORIGIN)
        return chunk

    def decided(self, chunk: Chunk) -> list[Outcome]:
        while chunk.undecided:
            asyncio.run(self.refusals.decide(chunk, {0: self.shard}))
        assert not chunk.refusals()
        return [outcome for _, outcome, _, _ in chunk.done]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_storage_that_refuses_what_it_gave_pauses_the_run_once_with_the_reason(bench: Bench) -> None:
    note_read(GOOD)

    assert bench.decided(bench.chunk()) == [Outcome.RETURN] * 3
    assert bench.decided(bench.chunk()) == [Outcome.RETURN] * 3

    [why] = bench.shard.reasons
    assert why.startswith("its documents cannot be read: s3://b refuses files that it returned before (403")
    assert "Renew the credentials of here" in why


def test_what_runs_after_the_pause_opens_its_files_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections, and processes of slots, have the credentials that they began with."""

    opened: list[str] = []
    monkeypatch.setattr(module, "reconnect", opened.append)
    note_read(GOOD)
    assert bench.decided(bench.chunk()) == [Outcome.RETURN] * 3

    bench.refusals.begin(b"another run, 16 b")
    assert (opened, bench.refusals.renewed) == ([], 0.0)
    bench.refusals.begin(RUN)
    bench.refusals.begin(RUN)
    assert opened == [GOOD]
    assert bench.refusals.renewed > 0.0


def test_a_process_with_the_credentials_of_before_is_replaced(bench: Bench) -> None:
    """The worker reads what it has read before, so that the run goes on, and what failed is retried in a new one."""

    note_read(GOOD)
    bench.closed.clear()
    assert bench.decided(bench.chunk()) == [Outcome.FAIL] * 3
    assert bench.refusals.renewed == 0.0
    assert bench.decided(bench.chunk(process=True)) == [Outcome.FAIL] * 3
    assert bench.refusals.renewed > 0.0
    assert bench.shard.reasons == []


def test_a_storage_that_has_given_nothing_fails_unless_its_run_is_paused(bench: Bench) -> None:
    """A consumer that has just begun does not know whether it ever gave anything."""

    note_read("s3://another/good.txt")
    assert bench.decided(bench.chunk()) == [Outcome.FAIL] * 3
    bench.shard.reasons.append("all of its first 100 documents failed")
    assert bench.decided(bench.chunk()) == [Outcome.FAIL] * 3
    bench.shard.reasons.append("its documents cannot be read: s3://b refuses them")
    assert bench.decided(bench.chunk()) == [Outcome.RETURN] * 3


def test_a_document_that_is_refused_alone_fails_with_its_own_error(bench: Bench) -> None:
    note_read(GOOD)
    bench.closed.discard(GOOD)
    chunk = bench.chunk()

    assert bench.decided(chunk) == [Outcome.FAIL] * 3
    assert all(b"PermissionError" in payload and b"s3://b/" in payload for _, _, payload, _ in chunk.done)
    assert [key for _, _, _, key in chunk.done] == ["0.txt", "1.txt", "2.txt"]
    assert bench.shard.reasons == []


def test_what_is_delivered_once_at_most_is_not_given_back(bench: Bench) -> None:
    note_read(GOOD)
    assert bench.decided(bench.chunk(early=True)) == [Outcome.FAIL] * 3


def test_local_files_and_other_errors_are_not_asked_about(bench: Bench) -> None:
    def wrong(doc: dq.Document) -> str:
        raise ValueError(doc.key)

    note_read(GOOD)
    assert bench.decided(bench.chunk(where=["/data", "file:///data", "s3"])) == [Outcome.FAIL] * 3
    assert bench.decided(bench.chunk(wrong)) == [Outcome.FAIL] * 3
    assert bench.tried == []


@pytest.mark.parametrize("sink", [False, True])
def test_what_is_not_decided_yet_is_never_settled(bench: Bench, *, sink: bool) -> None:
    """A slot's thread goes on while others are packed: what it refused in between was given back, and came again."""

    chunk = bench.chunk()
    chunk.lease = replace(chunk.lease, sink=sink)
    chunk.done.replace(0, Columns([0], [Outcome.ACK], [b"result"], ["0.txt"]))

    if sink:
        pending = chunk.pending()
        assert list(zip(*pending, strict=True)) == [chunk.done[0]]
        chunk.refer(pending)
        assert not chunk.pending().payloads
    first = chunk.collect()
    assert first is not None
    assert (list(Settlement.decode(first).ids()), chunk.collect()) == ([1], None)

    assert bench.decided(chunk) == [Outcome.ACK, Outcome.FAIL, Outcome.FAIL]
    chunk.refer(chunk.pending())
    rest_of_it = chunk.collect()
    assert rest_of_it is not None
    assert list(Settlement.decode(rest_of_it).ids()) == [2, 3]
    assert (chunk.finished, chunk.failed) == (True, 2)


def test_documents_of_a_run_with_a_sink_are_decided_while_it_goes_on(bench: Bench) -> None:
    """The first outcome is undecided, so there is no row to be written before that."""

    class Silent(Shard):
        async def call(self, function: str, body: bytes, /) -> bytes:
            return await super().call(function, body) if function == "watch" else await asyncio.Future()

    async def scenario() -> None:
        shards: Any = {0: Silent()}
        settling = settling_at(shards, bench.refusals)
        chunk = bench.chunk()
        chunk.lease = replace(chunk.lease, sink=True)

        settling.meanwhile(chunk)

        async with asyncio.timeout(20):
            while chunk.undecided:  # noqa: ASYNC110 - what it waits for sets no event
                await asyncio.sleep(0.005)
        assert chunk.pending().outcomes == [Outcome.FAIL] * 3
        for task in settling.tasks:
            task.cancel()

    asyncio.run(scenario())
