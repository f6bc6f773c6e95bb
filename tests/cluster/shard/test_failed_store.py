"""A disk that fails or is full under a durable queue: what waits gets the reason, and no client gets too much."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dqlab.cluster.consumer.runner import SlotOptions
from dqlab.cluster.consumer.running.execution import Work
from dqlab.cluster.consumer.running.functions import FunctionCache
from dqlab.cluster.consumer.slot import Slot
from dqlab.cluster.shard.durable import LogStore
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.frame import NO_ID
from dqlab.log.errors import DiskFull, LogFailed
from dqlab.log.files import Files
from dqlab.rules.states import State
from tests.cluster.consumer.test_coroutines import ORIGIN, Bench, NearRef, until
from tests.cluster.desk import DeskActor, finish, lease, opened, put

RUN = b"a-run-of-a-store"
WAITS: dict[str, Callable[[DeskActor], Awaitable[bytes]]] = {
    "settled": lambda actor: actor.settled(pack({"run": NO_ID, "lo": 0, "hi": 10, "wait": 60.0})),
    "idle": lambda actor: actor.idle(pack({"stuck": "there has been no consumer", "wait": 60.0})),
    "stream": lambda actor: actor.stream(pack({"run": NO_ID, "cursor": 0, "wait": 60.0})),
    "watch": lambda actor: actor.watch(pack({"run": NO_ID, "wait": 60.0})),
}


class Disk:
    """What the files under every log of this process do."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.error: OSError | None = None
        for name in ("write", "sync"):
            plain = getattr(Files, name)

            def call(files: Files, *arguments: Any, plain: Any = plain) -> Any:
                if self.error is not None:
                    raise self.error
                return plain(files, *arguments)

            patch.setattr(Files, name, call)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.parametrize("call", WAITS)
def test_who_waits_at_a_store_that_fails_gets_its_failure(call: str, disk: Disk, tmp_path: Path) -> None:
    """Else `run.wait()` and everything like it waits for ever: nothing is leased, and nothing can be settled."""

    async def scenario() -> None:
        actor = await opened(tmp_path)
        await put(actor, 3)
        waiting = asyncio.ensure_future(WAITS[call](actor))
        await asyncio.sleep(0)
        disk.error = OSError(errno.EIO, "the cable")
        with pytest.raises(LogFailed, match="the cable"):
            await put(actor, 1, sequence=1)
        with pytest.raises(LogFailed, match="the cable"):
            await asyncio.wait_for(waiting, 10)
        with pytest.raises(LogFailed):  # and who comes later
            await asyncio.wait_for(WAITS[call](actor), 10)
        assert "the cable" in actor.report().failure

    asyncio.run(scenario())


@pytest.mark.parametrize("call", WAITS)
def test_log_that_fails_while_it_is_compacted_is_reported_though_nothing_is_put(
    call: str, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that commits had nothing to do with it: the shard reported nothing, and its log stayed closed."""

    monkeypatch.setattr("dqlab.log.log._IDLE_S", 60.0)  # as after its last note

    async def scenario() -> None:
        actor = await opened(tmp_path)
        await put(actor, 3)
        reported = asyncio.Event()
        monkeypatch.setattr(actor._reporter, "touch", reported.set)
        waiting = asyncio.ensure_future(WAITS[call](actor))
        await asyncio.sleep(0)
        disk.error = OSError(errno.EIO, "the cable")
        with pytest.raises(LogFailed, match="the cable"):
            await actor.compact(pack({"wait": 10.0}))
        with pytest.raises(LogFailed, match="the cable"):
            await asyncio.wait_for(waiting, 10)
        await asyncio.wait_for(reported.wait(), 10)

    asyncio.run(scenario())


def test_commits_that_end_in_an_unexpected_error_fail_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that commits would be gone, and every confirmation would wait for ever."""

    async def scenario() -> None:
        actor = await opened(tmp_path)

        def sync(files: Files, descriptor: int) -> None:
            raise ZeroDivisionError("nobody thought of this")

        monkeypatch.setattr(Files, "sync", sync)
        with pytest.raises(LogFailed, match="ZeroDivisionError: nobody thought of this"):
            await asyncio.wait_for(put(actor, 3), 10)

    asyncio.run(scenario())


def test_a_run_is_done_when_that_is_on_disk(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk makes everybody wait, and is named; what was told would be gone with the process."""

    async def scenario() -> None:
        actor = await opened(tmp_path, record={"name": "run", "codes": [{"name": "f"}]}, run=RUN)
        await put(actor, 2, run=RUN)
        await actor.control(pack({"op": "seal", "seal": {"run": RUN, "here": 2, "total": 2}}))
        held = await lease(actor, "c", 2)
        disk.error = OSError(errno.ENOSPC, "full")
        settling = asyncio.ensure_future(finish(actor, held, [b"1", b"2"]))
        answer, _ = unpack(await actor.watch(pack({"run": RUN, "wait": 0.01})))
        assert answer["lane"]["counts"][3] == 2
        assert not answer["done"]
        assert "no room in" in answer["short"] == actor.report().short
        disk.error = None
        await asyncio.wait_for(settling, 10)
        answer, _ = unpack(await actor.watch(pack({"run": RUN, "wait": 10.0})))
        assert answer["done"]
        assert answer["short"] == ""

    asyncio.run(scenario())


def test_disk_that_hangs_first_and_is_full_then_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who had looked once, before the disk answered, waited for ever."""
    answers, looked = threading.Event(), threading.Event()
    plain = LogStore._impatient

    def write(files: Files, *arguments: object) -> int:
        answers.wait(10)
        raise OSError(errno.ENOSPC, "full")

    def impatient(store: LogStore, confirmed: asyncio.Future[None]) -> None:
        plain(store, confirmed)
        looked.set()

    async def scenario() -> None:
        actor = await opened(tmp_path)
        monkeypatch.setattr(Files, "write", write)
        putting = asyncio.ensure_future(put(actor, 3))
        await asyncio.to_thread(looked.wait, 10)
        assert not putting.done()
        answers.set()
        with pytest.raises(DiskFull):
            await asyncio.wait_for(putting, 10)

    monkeypatch.setattr("dqlab.cluster.shard.durable.DISK_PATIENCE", 0.02)
    monkeypatch.setattr(LogStore, "_impatient", impatient)
    asyncio.run(scenario())


def test_nothing_is_leased_while_the_disk_is_full(disk: Disk, tmp_path: Path) -> None:
    """Outcomes that cannot be written wait in memory; a run would fill it, whatever its results are."""

    async def scenario() -> None:
        actor = await opened(tmp_path)
        await put(actor, 3)
        held = await lease(actor, "c", 1)
        disk.error = OSError(errno.ENOSPC, "full")
        settling = asyncio.ensure_future(finish(actor, held, [b"1"]))
        await actor._changed.until(lambda: bool(actor.report().short), 10)
        asking = asyncio.ensure_future(lease(actor, "c", 1))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not asking.done()
        disk.error = None
        await asyncio.wait_for(settling, 10)
        assert (await asyncio.wait_for(asking, 10))["pieces"]

    asyncio.run(scenario())


# --- consumers ------------------------------------------------------------------------------


class MovingRef(NearRef):
    """A shard that may be opened again by another actor, which a slot then tells what it has in hand."""

    slot: Slot

    async def move(self, actor: DeskActor) -> None:
        await actor.reclaim(calls.ReclaimCall("consumer/q/0", self.slot.held(0)).pack())
        self.actor = actor


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dqlab.cluster.consumer.settling.REFUSED_AGAIN", 0.01)
    monkeypatch.setattr("dqlab.cluster.shard.durable.DISK_PATIENCE", 0.5)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("early", [False, True], ids=["late ack", "early ack"])
@pytest.mark.parametrize("how", ["full", "failed"])
def test_outcomes_that_a_store_refuses_are_settled_when_it_takes_them(
    how: str, early: bool, disk: Disk, tmp_path: Path
) -> None:
    """Each document runs once, and its result is kept: in the same log, or in the one that is opened after it."""

    async def scenario() -> tuple[list[int], list[int]]:
        actor, ran = await opened(tmp_path), list[int]()
        begun, go_on = threading.Event(), threading.Event()

        def work(x: int) -> int:
            ran.append(x)
            begun.set()
            assert go_on.wait(30)
            return -x

        here, ref = Bench(actor), MovingRef(actor)
        await here.put([1, 2, 3])
        chosen = SlotOptions(batch=100, early=early, concurrency=1, origin=ORIGIN, values=lambda: Work(work))
        ref.slot = slot = Slot("consumer/q/0#0", {0: ref}, chosen, FunctionCache(), lambda: None)  # type: ignore[dict-item]
        slot.start()
        assert await asyncio.to_thread(begun.wait, 30)
        disk.error = OSError(errno.ENOSPC if how == "full" else errno.EIO, how)
        go_on.set()
        await until(lambda: ref.count("settle") >= 3)
        disk.error = None
        if how == "failed":
            await actor.hand_over(pack({}))
            actor = await opened(tmp_path, consumers=["consumer/q/0"])
            await ref.move(actor)
        here = Bench(actor)
        await here.until(State.ACKED, 3)
        values = await here.values()
        await slot.stop()
        await actor.hand_over(pack({}))
        return ran, values

    ran, values = asyncio.run(scenario())
    assert ran == [1, 2, 3]
    assert values == [-1, -2, -3]
