"""Which documents that were refused fail, and which hold their run up until their storage gives them again."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.consumer import refusals as module
from dqlab.cluster.consumer.refusals import Refusals
from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.execution import Origin, Work, run_calls
from dqlab.cluster.consumer.running.functions import FunctionCache
from dqlab.cluster.consumer.slot import Slot, SlotOptions
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.documents import Labelled
from dqlab.documents import refusals as reading
from dqlab.documents.refusals import note_read
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Settlement

ORIGIN = Origin("consumer/q/0", "w", 1 << 30)
GOOD = "s3://b/good.txt"


def refused(doc: dq.Document) -> str:
    raise PermissionError(f"403 {doc.where}")


class Shard:
    """Notes what is reported."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.wanted, self.others = True, False

    async def call(self, function: str, body: bytes, /) -> bytes:
        meta, _ = unpack(body)
        assert (function, meta["what"], meta["consumer"]) == ("hold", "documents", ORIGIN.consumer)
        self.reasons.append(meta["why"])
        return pack({"wanted": self.wanted, "others": self.others})


class Bench:
    """A consumer, a shard, and a storage that refuses some of its files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed = {GOOD, *(f"s3://b/{at}.txt" for at in range(3))}
        self.tried: list[str] = []
        self.shard = Shard()
        self.refusals = Refusals(ORIGIN.consumer, "here")
        monkeypatch.setattr(module, "AGAIN_S", (0.01, 0.02))
        monkeypatch.setattr(module, "refuses", self._refuses)
        monkeypatch.setattr(reading, "_read", {})
        monkeypatch.setattr(reading, "_latest", "")

    def _refuses(self, url: str, storage: str) -> str:
        self.tried.append(url)
        return "403 Forbidden" if url in self.closed else ""

    def chunk(
        self,
        fn: Callable[[Any], Any] = refused,
        *,
        where: Sequence[str] = ("s3://b",) * 3,
        first: int = 1,
        run: bytes = NO_ID,
        early: bool = False,
        process_began: float | None = None,
        labelled: bool = False,
    ) -> Chunk:
        """Run a function over three documents, or over as many as there are folders."""
        documents = [dq.Document(f"{at}.txt", "", f"{folder}/{at}.txt") for at, folder in enumerate(where)]
        sent = [Labelled(f"paper {each.key}", each) if labelled else each for each in documents]
        payloads = [pickle.dumps(each, 5) for each in sent]
        frame = Frame.decode(Frame.encode(payloads, kind=Kind.ELEMENT, run=run, ordinal=0))
        chunk = Chunk(0, 1, 1, 60.0, [first], [frame], None if process_began is None else {"timeout": None})
        chunk.early, chunk.process_began = early, process_began or 0.0
        run_calls(chunk, Work(fn), ORIGIN)
        return chunk

    async def decided(self, chunk: Chunk) -> list[Outcome]:
        while chunk.undecided:
            await self.refusals.decide(chunk, {0: self.shard})
        assert not chunk.refusals()
        return [outcome for _, outcome, _, _ in chunk.done]


def played(monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        bench = Bench(monkeypatch)
        try:
            await asyncio.wait_for(scenario(bench), 20)
        finally:
            bench.refusals.close()

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - what it waits for sets no event
        await asyncio.sleep(0.005)


def test_a_storage_that_refuses_what_it_gave_holds_the_run_up_until_it_gives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(bench: Bench) -> None:
        note_read(GOOD)

        assert await bench.decided(bench.chunk()) == [Outcome.RETURN] * 3
        assert await bench.decided(bench.chunk()) == [Outcome.RETURN] * 3
        await until(lambda: len(bench.shard.reasons) > 2)

        assert all(why.startswith("its documents cannot be read: s3://b refuses") for why in bench.shard.reasons)
        assert bench.refusals.renewed == 0.0
        bench.closed.clear()
        await until(lambda: bench.shard.reasons[-1] == "")
        assert bench.refusals.renewed > 0.0
        assert not bench.refusals._waits

    played(monkeypatch, scenario)


def test_a_document_with_a_label_waits_for_credentials_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lab.map(fn, {"first": doc})` failed each of them."""

    async def scenario(bench: Bench) -> None:
        note_read(GOOD)
        assert await bench.decided(bench.chunk(labelled=True)) == [Outcome.RETURN] * 3

    played(monkeypatch, scenario)


def test_a_document_that_is_refused_alone_fails_with_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        note_read(GOOD)
        bench.closed.discard(GOOD)
        chunk = bench.chunk()

        assert await bench.decided(chunk) == [Outcome.FAIL] * 3
        assert all(b"PermissionError" in payload and b"s3://b/" in payload for _, _, payload, _ in chunk.done)
        assert [key for _, _, _, key in chunk.done] == ["0.txt", "1.txt", "2.txt"]
        assert bench.shard.reasons == []

    played(monkeypatch, scenario)


def test_a_storage_that_has_given_nothing_fails_unless_others_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that has just begun does not know whether it ever gave anything."""

    async def scenario(bench: Bench) -> None:
        note_read("s3://another/good.txt")
        assert await bench.decided(bench.chunk()) == [Outcome.FAIL] * 3
        bench.shard.others = True
        assert await bench.decided(bench.chunk()) == [Outcome.RETURN] * 3
        assert not any(bench.shard.reasons), "it has no reason of its own"

    played(monkeypatch, scenario)


def test_what_is_delivered_once_at_most_is_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        note_read(GOOD)
        assert await bench.decided(bench.chunk(early=True)) == [Outcome.FAIL] * 3

    played(monkeypatch, scenario)


def test_local_files_and_other_errors_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(doc: dq.Document) -> str:
        raise ValueError(doc.key)

    async def scenario(bench: Bench) -> None:
        note_read(GOOD)
        assert await bench.decided(bench.chunk(where=["/data", "file:///data", "s3"])) == [Outcome.FAIL] * 3
        assert await bench.decided(bench.chunk(wrong)) == [Outcome.FAIL] * 3
        assert bench.tried == []

    played(monkeypatch, scenario)


def test_no_wait_goes_on_for_the_documents_of_a_run_that_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        note_read(GOOD)
        assert await bench.decided(bench.chunk()) == [Outcome.RETURN] * 3
        bench.shard.wanted = False
        await until(lambda: not bench.refusals._waits)
        assert bench.refusals.renewed == 0.0

    played(monkeypatch, scenario)


def test_a_storage_that_does_not_answer_has_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is met where the file is read, with its own error."""

    async def scenario(bench: Bench) -> None:
        asked = asyncio.Event()
        monkeypatch.setattr(module, "TRY_S", 0.05)
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(module, "refuses", lambda *_: asyncio.run_coroutine_threadsafe(asked.wait(), loop).result())
        note_read(GOOD)

        assert await bench.decided(bench.chunk()) == [Outcome.FAIL] * 3
        asked.set()

    played(monkeypatch, scenario)


def test_what_can_be_read_by_the_time_it_is_decided_comes_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its credentials were renewed meanwhile. Refused once more, it was another service that refused it."""

    async def scenario(bench: Bench) -> None:
        bench.closed.clear()
        before = time.monotonic()
        assert await bench.decided(bench.chunk()) == [Outcome.RETURN] * 3
        assert bench.refusals.renewed >= before, "processes of slots that are older are replaced"
        assert bench.shard.reasons == []

        renewed = bench.refusals.renewed
        assert await bench.decided(bench.chunk()) == [Outcome.FAIL] * 3
        assert await bench.decided(bench.chunk(first=11)) == [Outcome.FAIL] * 3, "so is the rest of its run"
        assert bench.refusals.renewed == renewed
        assert await bench.decided(bench.chunk(first=11, run=b"r" * 16)) == [Outcome.RETURN] * 3

        monkeypatch.setattr(module, "IN_VAIN_S", 0.0)
        assert await bench.decided(bench.chunk(first=21)) == [Outcome.RETURN] * 3

    played(monkeypatch, scenario)


def test_credentials_that_are_renewed_while_a_document_is_tried_do_not_make_it_forbidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be refused, what was read before would not: as if it were the only one."""

    async def scenario(bench: Bench) -> None:
        def renewed_then(url: str, storage: str) -> str:
            reason = bench._refuses(url, storage)
            bench.closed.clear()
            return reason

        monkeypatch.setattr(module, "refuses", renewed_then)
        note_read(GOOD)
        assert await bench.decided(bench.chunk()) == [Outcome.RETURN] * 3
        assert len(bench.tried) == 2

    played(monkeypatch, scenario)


def test_a_wait_of_another_consumer_that_ends_meanwhile_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage refused the document, and no consumer waited for it any more when the shards were asked."""

    async def scenario(bench: Bench) -> None:
        class Ends(Shard):
            async def call(self, function: str, body: bytes, /) -> bytes:
                bench.closed.clear()
                return await super().call(function, body)

        bench.shard = Ends()
        assert await bench.decided(bench.chunk()) == [Outcome.RETURN] * 3

    played(monkeypatch, scenario)


def test_a_consumer_that_only_followed_another_replaces_its_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has seen that the storage gives its files again."""

    async def scenario(bench: Bench) -> None:
        bench.shard.others = True
        assert await bench.decided(bench.chunk(process_began=1.0)) == [Outcome.RETURN] * 3
        assert bench.refusals.renewed == 0.0

        bench.shard.others = False
        bench.closed.clear()
        assert await bench.decided(bench.chunk(process_began=1.0)) == [Outcome.RETURN] * 3
        assert bench.refusals.renewed > 1.0

    played(monkeypatch, scenario)


def test_what_a_process_that_is_to_be_replaced_refuses_replaces_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs the rest of its messages with credentials of before, while that of another slot has the new ones."""

    async def scenario(bench: Bench) -> None:
        bench.closed.clear()
        assert await bench.decided(bench.chunk(process_began=1.0)) == [Outcome.RETURN] * 3
        renewed = bench.refusals.renewed
        assert await bench.decided(bench.chunk(first=11, process_began=1.0)) == [Outcome.RETURN] * 3
        assert bench.refusals.renewed == renewed
        assert await bench.decided(bench.chunk(first=21, process_began=renewed)) == [Outcome.RETURN] * 3
        assert bench.refusals.renewed > renewed

    played(monkeypatch, scenario)


def test_each_storage_of_a_chunk_is_decided_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last document is forbidden by itself, and the credentials of another storage have expired."""

    async def scenario(bench: Bench) -> None:
        for place in (GOOD, "s3://c/good.txt", "s3://d/good.txt"):
            note_read(place)
        bench.closed |= {"s3://b/0.txt", "s3://c/3.txt"}
        chunk = bench.chunk(where=["s3://b", "s3://d", "/data", "s3://c"])

        assert await bench.decided(chunk) == [Outcome.RETURN, Outcome.RETURN, Outcome.FAIL, Outcome.FAIL]
        assert bench.shard.reasons[0].startswith("its documents cannot be read: s3://b refuses")

    played(monkeypatch, scenario)


def test_few_storages_are_tried_for_documents_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages come from a thousand hosts, and each host may take ten seconds to fail."""

    async def scenario(bench: Bench) -> None:
        monkeypatch.setattr(module, "STORAGES", 2)
        assert await bench.decided(bench.chunk(where=[f"s3://{at}" for at in range(5)])) == [
            *[Outcome.RETURN] * 2,
            *[Outcome.FAIL] * 3,
        ]
        assert sorted(bench.tried) == ["s3://0/0.txt", "s3://1/1.txt"]

    played(monkeypatch, scenario)


def test_what_cannot_be_decided_fails_with_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undecided it would be held until its lease ends, and delivered again for ever."""

    def broken(*_: object) -> str:
        raise RuntimeError("not decided")

    async def scenario(bench: Bench) -> None:
        monkeypatch.setattr(module, "refuses", broken)
        assert await bench.decided(bench.chunk()) == [Outcome.FAIL] * 3
        monkeypatch.setattr(module, "root_of", broken)
        assert await bench.decided(bench.chunk()) == [Outcome.FAIL] * 3

    played(monkeypatch, scenario)


def test_what_came_again_is_remembered_of_few_runs_and_of_few_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        bench.closed.clear()
        monkeypatch.setattr(module, "STRETCHES", 5)
        for at in range(module.RUNS + 5):
            assert await bench.decided(bench.chunk(run=b"%16d" % at)) == [Outcome.RETURN] * 3
        assert len(bench.refusals._again) == module.RUNS
        found = [await bench.decided(bench.chunk(first=10 * at)) for at in range(1, 8)]
        assert found == [[Outcome.RETURN] * 3] * 5 + [[Outcome.FAIL] * 3] * 2

    played(monkeypatch, scenario)


@pytest.mark.parametrize("sink", [False, True])
def test_what_is_not_decided_yet_is_never_settled(monkeypatch: pytest.MonkeyPatch, *, sink: bool) -> None:
    """A slot's thread goes on while others are packed: what it refused in between was given back, and came again."""

    async def scenario(bench: Bench) -> None:
        chunk = bench.chunk()
        chunk.sink = sink
        chunk.done[0] = 0, Outcome.ACK, b"result", "0.txt"

        if sink:
            pending = chunk.pending()
            assert pending == chunk.done[:1]
            chunk.refer(pending)
            assert not chunk.pending()
        first = chunk.collect()
        assert first is not None
        assert (list(Settlement.decode(first).ids()), chunk.collect()) == ([1], None)

        assert await bench.decided(chunk) == [Outcome.ACK, Outcome.FAIL, Outcome.FAIL]
        chunk.refer(chunk.pending())
        rest_of_it = chunk.collect()
        assert rest_of_it is not None
        assert list(Settlement.decode(rest_of_it).ids()) == [2, 3]
        assert (chunk.finished, chunk.failed) == (True, 2)

    played(monkeypatch, scenario)


def test_documents_of_a_run_with_a_sink_are_decided_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first outcome is undecided, so there is no row to be written before that."""

    class Silent(Shard):
        async def call(self, function: str, body: bytes, /) -> bytes:
            return await super().call(function, body) if function == "hold" else await asyncio.Future()

    async def scenario(bench: Bench) -> None:
        shards: Any = {0: Silent()}
        options = SlotOptions(batch=1, early=False, concurrency=1, origin=ORIGIN, values=None)
        slot = Slot("c#0", shards, options, FunctionCache(), lambda: None, refusals=bench.refusals)
        chunk = bench.chunk()
        chunk.sink = True

        slot._settle_meanwhile(chunk)

        await until(lambda: not chunk.undecided)
        assert [outcome for _, outcome, _, _ in chunk.pending()] == [Outcome.FAIL] * 3
        for task in slot._settling:
            task.cancel()

    played(monkeypatch, scenario)
