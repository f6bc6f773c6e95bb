"""A run whose consumers cannot keep results: nothing of it is leased, as long as one of them reports that."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dqlab.cluster.consumer import sink_writing
from dqlab.cluster.shard import actor as shard_actor
from dqlab.cluster.shard.recalls import LASTS, Blocks
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.errors import CallTimeout, RunNotFound
from tests.cluster.desk import DeskActor, frame, opened

RUN, OTHER = b"r" * 16, b"o" * 16


def record(name: str) -> dict[str, object]:
    return {"name": name, "codes": [{"name": "f", "hash": "h", "short": "s"}], "sink": {"kind": "parquet"}}


def test_a_report_counts_until_it_is_taken_back_or_too_old() -> None:
    """A consumer that died cannot take it back."""
    blocks = Blocks()

    assert blocks.note(RUN, "a", "full", 0.0) == "full"
    assert blocks.note(RUN, "b", "gone", 1.0) == "full"
    assert blocks.note(RUN, "a", "", 2.0) == "gone"
    assert blocks.why(RUN, 1.0 + LASTS - 0.1) == "gone"
    assert blocks.why(RUN, 1.0 + LASTS) == ""
    assert blocks.runs == set()
    blocks.note(RUN, "a", "full", 50.0)
    blocks.forget(["a"])
    assert blocks.why(RUN, 50.0) == ""
    assert blocks.why(OTHER, 0.0) == ""


async def hold(actor: DeskActor, run: bytes, consumer: str, why: str) -> bool:
    answer, _ = unpack(await actor.hold(pack({"run": run, "consumer": consumer, "why": why})))
    return bool(answer["wanted"])


def test_a_shard_that_has_not_answered_may_still_want_what_is_reported_to_all() -> None:
    """It is on the move; a run that ended elsewhere would be given up for it."""

    async def answered(*answers: dict[str, bool] | Exception) -> bool:
        async def call(at: int, function: str, body: bytes) -> bytes:
            asked.append((function, unpack(body)[0]))
            answer = answers[at]
            if isinstance(answer, Exception):
                raise answer
            return pack(answer)

        asked: list[tuple[str, dict[str, object]]] = []
        found = await sink_writing.hold([partial(call, at) for at in range(len(answers))], RUN, "c/0", "full")
        assert asked == [("hold", {"run": RUN, "consumer": "c/0", "why": "full"})] * len(answers)
        return found

    none, wanted = {"wanted": False}, {"wanted": True}
    for answers, expected in [
        ([none, none], False),
        ([none, wanted], True),
        ([none, RunNotFound(run="r", hint="", known="none")], False),
        ([none, CallTimeout(name="q", call="hold", seconds=1.0)], True),
    ]:
        assert asyncio.run(answered(*answers)) is expected


async def leases(actor: DeskActor, slot: str) -> bytes | None:
    """Ask for one message; return its run."""
    call = asyncio.ensure_future(actor.lease(pack({"consumer": slot, "session": "s", "credit": [1, 1, 1]})))
    await asyncio.sleep(0.01)
    if not call.done():
        call.cancel()
        await asyncio.wait((call,))
        return None
    answer, _ = unpack(call.result())
    if "lease" not in answer:
        return None
    return next(lease.run for lease in actor.shard.leases.values() if lease.id == answer["lease"]["id"])


def test_a_run_that_is_held_up_does_not_hold_up_others() -> None:
    """A full disk of one run; the queue has other runs."""

    async def scenario() -> None:
        actor = await opened(run=RUN, record=record("held"))
        await actor.control(pack({"op": "open", "open": {"run": OTHER, "record": record("other")}}))
        for number, run in enumerate((RUN, OTHER)):
            await actor.put(pack({"frames": 1, "wait": 0.0}, frame(5, run=run, sequence=number)))

        assert await hold(actor, RUN, "consumer/q/0", "full")
        assert [await leases(actor, f"c#{n}") for n in range(6)] == [OTHER] * 5 + [None]
        watched, _ = unpack(await actor.watch(pack({"run": RUN})))
        assert watched["lane"]["held"] == "full"

        await hold(actor, RUN, "consumer/q/0", "")
        assert await leases(actor, "c#9") == RUN
        assert not await hold(actor, b"x" * 16, "consumer/q/0", "full")  # of a run that was dropped nothing is wanted
        await actor.hand_over(pack({}))

    asyncio.run(scenario())


def test_the_hold_of_a_dead_consumer_ends_with_it() -> None:
    """Another one may reach the sink, and the run would wait for half a minute, or for ever."""

    async def scenario() -> None:
        actor = await opened(run=RUN, record=record("held"))
        await actor.put(pack({"frames": 1, "wait": 0.0}, frame(5, run=RUN)))
        await hold(actor, RUN, "consumer/q/0", "full")
        assert await leases(actor, "c#0") is None

        await actor.release(pack({"consumers": ["consumer/q/0"]}))

        assert await leases(actor, "c#1") == RUN
        await actor.hand_over(pack({}))

    asyncio.run(scenario())


def test_a_hold_that_is_not_repeated_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that was retired in good order reports nothing any more, either."""
    monkeypatch.setattr("dqlab.cluster.shard.recalls.LASTS", 0.05)
    monkeypatch.setattr(shard_actor, "LASTS", -0.9)

    async def scenario() -> None:
        actor = await opened(run=RUN, record=record("held"))
        await actor.put(pack({"frames": 1, "wait": 0.0}, frame(5, run=RUN)))
        await hold(actor, RUN, "consumer/q/0", "full")
        assert await leases(actor, "c#0") is None
        await asyncio.sleep(0.15)
        assert await leases(actor, "c#1") == RUN
        await actor.hand_over(pack({}))

    asyncio.run(scenario())
