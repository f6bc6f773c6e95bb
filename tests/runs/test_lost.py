"""Runs whose shards die with all they held: counted at once, named, and sent again."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import uuid
from collections import UserList
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.handle import Handle
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.orders import Cancel, Resume
from dqlab.errors import (
    CallTimeout,
    DocumentsLost,
    InputChanged,
    InputNotHere,
    InputUsedUp,
    MessagesLost,
    NotSentAgain,
    RunCancelled,
    RunExists,
    RunFailed,
    SubmissionIncomplete,
    WaitTimeout,
)
from dqlab.rules.states import State
from dqlab.runs.claiming import Claim
from dqlab.runs.lost import LostDocument
from dqlab.runs.session import Session
from dqlab.runs.submit.resubmission import claim_of
from tests import waiting
from tests.examples import examples
from tests.runs.test_cut_off import all_there, double, held_up, submit_half_and_die
from tests.sampled import mostly_slow

pytestmark = pytest.mark.cluster


class Again:
    """An input that can be read as often as one likes, and is no sequence."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.n))


def wrong(x: int) -> int:
    raise ValueError(x)


def slow_double(x: int) -> int:
    time.sleep(0.001)  # the work it does
    return 2 * x


@pytest.fixture(scope="module")
def hurt() -> Iterator[Client]:
    """A client of a cluster that may be hurt: two workers for queues, two for consumers."""
    with (
        # Dask gives a worker up for good that is being replaced at the moment when this is over.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        Session.of(client, reserved=("0", "1"))
        yield client


@pytest.fixture
def other(hurt: Client) -> Iterator[Client]:
    """The client of another process."""
    with Client(hurt.scheduler.address, set_as_default=False) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"q-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def pool(hurt: Client, name: str) -> Iterator[dq.QueuePool]:
    """A queue of one shard."""
    pool = dq.QueuePool(hurt, name=name, served=True, maxsize=100_000)
    yield pool
    pool.close(force=True)


@pytest.fixture
def two(hurt: Client, name: str) -> Iterator[dq.QueuePool]:
    """A queue of two shards, each on a worker of its own."""
    hurt.wait_for_workers(4, timeout=30)
    pool = dq.QueuePool(hurt, 2, name=name, served=True, maxsize=100_000)
    yield pool
    pool.close(force=True)


def host_of(pool: dq.QueuePool, shard: int = 0) -> tuple[str, int]:
    """Address and process of the worker that holds a shard."""
    link = pool.handle.link
    address = link.sync(pool.handle.refs[shard].place()).address
    return address, link.client.run(os.getpid, workers=[address])[address]


def kill(pool: dq.QueuePool, shard: int = 0) -> str:
    """Kill the worker that holds a shard; return its address when the shard is somewhere else."""
    address, process = host_of(pool, shard)
    os.kill(process, signal.SIGKILL)
    pool[shard].stats()
    assert host_of(pool, shard)[0] != address
    return address


def cut_off_and_lost(pool: dq.QueuePool) -> dq.Run:
    """Return a run whose client was killed half-way, and then the worker of its first shard."""
    lab: Any = SimpleNamespace(client=pool.session.link.client)
    submit_half_and_die(lab, pool)
    kill(pool)
    run = pool.session.runs.attach("cut")
    with pytest.raises(SubmissionIncomplete, match="again to go on"):
        run.wait(timeout=30)
    return run


def total(run: dq.Run) -> int:
    return sum(run.counts.values())


def test_other_shards_keep_what_they_have_and_every_client_sees_the_same(two: dq.QueuePool, other: Client) -> None:
    run = two.map(double, list(range(20_000)), name="word-count").wait(timeout=30)
    worker = kill(two, 0)  # it had the run record

    counts = run.counts
    theirs = dq.QueuePool(other, name=two.name).session.runs.attach("word-count")
    lost = run.lost()

    assert counts["lost"] == 20_000 - counts["acked"] == len(lost) > 0
    assert counts["acked"] > 0
    assert theirs.counts == counts
    assert theirs.lost().ranges == lost.ranges
    assert list(theirs.lost()) == list(lost.ordinals)
    assert lost[1] == (list(lost.ordinals)[1],) * 2
    with pytest.raises(DocumentsLost, match=rf"{len(lost):,} of 20,000 .* shard 0 .*{worker} died") as caught:
        run.wait(timeout=30)
    assert caught.value.ranges == lost.ranges
    with pytest.raises(DocumentsLost, match=r"resubmit_lost\(\)"):
        theirs.results(timeout=30)
    seen = []
    with pytest.raises(DocumentsLost):
        seen += run.as_completed(timeout=30)
    skipped, instead, gone = list(run.results(errors="skip")), list(run.results(errors="return")), set(lost.ordinals)
    assert skipped == [2 * x for x in range(20_000) if x not in gone]
    assert [x for x in instead if not isinstance(x, LostDocument)] == skipped
    assert instead[lost[0][0]].key == lost[0][0]
    assert run.stats(timeout=10).counts.lost == len(lost)

    with pytest.raises(InputNotHere, match="under the name 'word-count'"):
        theirs.resubmit_lost()
    assert run.resubmit_lost() == len(lost)
    assert list(run.results(timeout=30)) == [2 * x for x in range(20_000)]
    assert list(theirs.results(timeout=30)) == [2 * x for x in range(20_000)]
    assert run.counts["acked"] == total(run) == 20_000
    assert not run.lost()
    assert run.resubmit_lost() == 0


def test_the_examples_of_the_how_to_run(two: dq.QueuePool) -> None:
    """Line by line: one of them raises, as the page has it."""
    see, send = examples("send-lost-documents-again.md")
    run = two.map(double, list(range(5_000)), name="word-count").wait(timeout=30)
    kill(two, 1)
    counts, wait, lost = see.text.splitlines()

    assert eval(counts, {"run": run})["lost"] > 0
    with pytest.raises(
        DocumentsLost, match=r"of 5,000 documents of run 'word-count' are lost: .* in memory, in shard 1"
    ):
        eval(wait, {"run": run})
    assert len(eval(lost, {"run": run}).ranges) > 0
    send.run({"run": run})
    assert list(run.results(timeout=30)) == [2 * x for x in range(5_000)]


def test_a_loss_in_the_middle_of_submission_costs_what_was_confirmed_and_nothing_else(two: dq.QueuePool) -> None:
    """What is on its way is sent to the new epoch; the run's end puts the counts right."""

    def documents() -> Iterator[int]:
        for x in range(60_000):
            if x in (20_000, 40_000):
                two[1].stats()  # the second time it waits until the shard is somewhere else
                os.kill(host_of(two, 1)[1], signal.SIGKILL)
            yield x

    run = two.map(double, documents(), name="filling")
    with pytest.raises(DocumentsLost):
        run.wait(timeout=40)

    counts = run.counts
    assert counts["acked"] + counts["lost"] == total(run) == 60_000
    assert len(run.lost()) == counts["lost"] > 0
    with pytest.raises(InputUsedUp, match=r"came from a generator.*under the name 'filling'"):
        run.resubmit_lost()
    again = two.map(double, Again(60_000), name="filling")
    assert again.resubmit_lost() == counts["lost"]
    assert list(again.results(timeout=40)) == [2 * x for x in range(60_000)]
    assert again.counts["acked"] == total(again) == 60_000


def test_a_shard_is_lost_again_while_its_documents_are_sent_again(pool: dq.QueuePool) -> None:
    run = pool.map(slow_double, range(3000), name="unlucky")
    finished = run.as_completed(timeout=30)
    values = [next(finished)[1] for _ in range(300)]
    for _ in range(2):
        kill(pool)
        run.resubmit_lost()
        values += [next(finished)[1] for _ in range(300)]

    values += [value for _, value in finished]
    assert sorted(values) == [2 * x for x in range(3000)]  # what came before a loss did not come again
    assert list(run.results(timeout=40)) == [2 * x for x in range(3000)]
    assert run.counts["acked"] == total(run) == 3000


def test_a_run_that_ended_since_the_last_report_ends_all_the_same(hurt: Client, pool: dq.QueuePool) -> None:
    """Reports lag; here there are none at all."""
    host = host_of(pool)[0]
    hurt.run(_report_no_more, workers=[host])
    run = pool.map(double, range(3000), name="unheard").wait(timeout=30)
    kept = run.results()
    assert kept[7] == 14
    kill(pool)

    assert run.counts["lost"] == total(run) == 3000
    with pytest.raises(DocumentsLost, match="3,000 of 3,000"):
        run.wait(timeout=30)
    with pytest.raises(DocumentsLost, match="3,000 of 3,000"):
        list(kept)
    run.resubmit_lost()
    assert list(run.results(timeout=30)) == [2 * x for x in range(3000)]


def _report_no_more() -> None:
    from dqlab.cluster.transport.reports import Reporter

    Reporter.send = lambda self: None  # type: ignore[method-assign]


def test_a_worker_of_a_transient_queue_that_hangs_is_ended_and_its_loss_is_named(
    pool: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("TRANSIENT_SILENCE", "NEW_SILENCE"):
        monkeypatch.setattr(f"dqlab.cluster.scheduler.departures.{limit}", 1.0)
    run = pool.map(double, range(100), name="hung").wait(timeout=30)
    worker, process = host_of(pool)
    os.kill(process, signal.SIGSTOP)
    waiting.until(lambda: psutil.Process(process).status() == psutil.STATUS_STOPPED)  # until then it may answer

    def read() -> None:
        run.results(timeout=30)
        pytest.fail(f"{worker} was stopped, but {host_of(pool)} answers: {run._progress()}")

    with pytest.raises(DocumentsLost, match=rf"100 of 100 .*{worker} died"):
        read()


def test_single_calls_that_were_lost_say_so_and_later_ones_go_on(pool: dq.QueuePool) -> None:
    """The function is sent once more as well: the new shard has never seen it."""
    put = pool.batch_submit([(double, x) for x in range(10)])
    ids = put.ids
    worker = kill(pool)

    with pytest.raises(MessagesLost, match=rf"10 of 10 messages .*{worker} died"):
        put.results(timeout=30)
    later = pool.submit(double, 21)
    assert later.results(timeout=30) == [42]
    assert min(later.ids) > max(ids)


def test_an_input_that_has_changed_is_not_sent_again(pool: dq.QueuePool) -> None:
    """A document at another's place would be worse than a lost one."""
    documents = UserList(f"document {x}" for x in range(3000))  # of a list a copy was taken
    run = pool.map(len, documents, name="changed").wait(timeout=30)
    kill(pool)
    documents[1200] += " has changed"

    run.resubmit_lost()
    with pytest.raises(InputChanged, match="they differ before document 1,"):
        run.wait(timeout=30)
    counts = run.counts
    assert counts["lost"] + counts["ready"] + counts["leased"] + counts["acked"] == 3000
    assert counts["lost"] >= 1800
    assert len(run.results(errors="skip", timeout=30)) == 3000 - counts["lost"]

    documents[1200] = "document 1200"
    run.resubmit_lost()
    assert list(run.results(timeout=30)) == [len(document) for document in documents]


def test_other_clients_wait_while_one_sends_again(pool: dq.QueuePool, other: Client) -> None:
    run = pool.map(double, range(100), name="together").wait(timeout=30)
    kill(pool)
    theirs = dq.QueuePool(other, name=pool.name).session.runs.attach("together")
    claim = Claim(run.handle.link, claim_of(run.id))
    assert claim.take()

    with pytest.raises(WaitTimeout):
        theirs.wait(timeout=0.2)
    claim.give_back()
    with pytest.raises(DocumentsLost):
        theirs.wait(timeout=30)


def test_run_of_a_client_and_a_shard_that_are_both_gone_is_completed_by_mapping_again(
    two: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dqlab.cluster.scheduler.clients.AWAY", 0.1)
    cut_off_and_lost(two)

    again = two.map(double, range(5000), name="cut")
    assert list(again.results(timeout=30)) == [2 * x for x in range(5000)]
    assert total(again) == 5000


def test_documents_that_were_confirmed_after_the_last_report_are_lost_too_when_their_client_is_gone(
    pool: dq.QueuePool, name: str, hurt: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dqlab.cluster.scheduler.clients.AWAY", 0.1)
    monkeypatch.setattr("dqlab.runs.submit.mapping.NOTE_EVERY", 0.0)
    monkeypatch.setattr("dqlab.runs.submit.mapping.Submitter._note_while_it_rests", lambda submitter: None)
    sending: Future[dq.Run] = Future()
    noted, go_on = threading.Event(), threading.Event()

    def documents() -> Iterator[int]:
        yield from range(60)
        submitter = sending.result(30).submitter
        assert submitter is not None
        submitter.sender.flush(30)
        yield 60  # with it is noted that the queue holds the ones before
        noted.set()
        go_on.wait(60)

    def all_reported(dask_scheduler: Any) -> bool:
        report = dask_scheduler.plugins["dqlab"].collector.known.shard(name, 0)
        return any(lane.name == "late" and lane.counts[State.ACKED] >= 60 for lane in report.lanes)

    def forget_eighteen(dask_scheduler: Any) -> None:
        report = dask_scheduler.plugins["dqlab"].collector.known.shard(name, 0)
        (lane,) = (lane for lane in report.lanes if lane.name == "late")
        lane.counts = [n - 18 * (state == State.ACKED) for state, n in enumerate(lane.counts)]

    with Client(hurt.scheduler.address, set_as_default=False) as theirs:
        run = dq.QueuePool(theirs, name=pool.name).map(double, documents(), name="late")
        sending.set_result(run)
        assert noted.wait(30)
        seen = pool.session.runs.attach("late")
        while seen.stats().counts.acked < 60:
            time.sleep(0.005)
        seen.pause()  # nothing more is reported
        while not hurt.run_on_scheduler(all_reported):  # a shard reports four times a second
            pass
        hurt.run_on_scheduler(forget_eighteen)
        theirs.close()
    kill(pool)

    again = pool.map(double, range(100), name="late")
    again.resume()
    with pytest.raises(DocumentsLost):
        again.wait(timeout=30)
    assert again.counts["lost"] == len(again.lost()) == 60
    assert total(again) == 100
    go_on.set()
    assert again.resubmit_lost() == 60
    assert list(again.results(timeout=30)) == [2 * x for x in range(100)]


def test_other_documents_are_not_sent_for_lost_ones_however_often_one_asks(pool: dq.QueuePool, other: Client) -> None:
    mine = pool.map(len, ["a", "bb"] * 50, name="mine").wait(timeout=30)
    kill(pool)
    theirs = dq.QueuePool(other, name=pool.name)

    for _ in range(2):
        with pytest.raises(RunExists, match="other documents"):
            theirs.map(len, ["other", "ones"] * 50, name="mine").wait(timeout=30)

    assert mine.counts["lost"] == total(mine) == 100


def test_lost_documents_run_the_newest_code_although_it_went_with_its_shard(pool: dq.QueuePool) -> None:
    run = pool.map(wrong, range(10), name="mended", retry=dq.Retry(0)).wait(timeout=30)
    run.retry(double)
    run.wait(timeout=30)
    kill(pool)

    assert run.resubmit_lost() == 10
    assert list(run.results(timeout=30)) == [2 * x for x in range(10)]
    assert [version.version for version in run.versions] == [1, 2]


def test_a_run_that_was_cancelled_takes_no_lost_documents_ever_again(pool: dq.QueuePool) -> None:
    run = pool.map(double, range(100), name="given-up").wait(timeout=30)
    kill(pool)
    run.cancel()

    with pytest.raises(RunCancelled):
        run.resubmit_lost()
    kill(pool)  # what was known of it is told to the next epoch
    with pytest.raises(RunCancelled):
        run.resubmit_lost()
    assert run.counts["lost"] == total(run) == 100


def test_who_sends_lost_documents_while_the_run_is_cancelled_is_told(pool: dq.QueuePool) -> None:
    held = threading.Event()

    class Slow(Again):
        def __iter__(self) -> Iterator[int]:
            for x in range(self.n):
                if x == 2500 and run:
                    held.wait(60)
                yield x

    run: list[dq.Run] = []
    run.append(pool.map(double, Slow(3000), name="meanwhile").wait(timeout=30))
    kill(pool)
    run[0].resubmit_lost()
    run[0].handle.link.sync(run[0].handle.order(Cancel(run[0].id, complete=True)))  # as another client would
    held.set()

    with pytest.raises(NotSentAgain, match="cancelled"):
        run[0].wait(timeout=30)
    assert total(run[0]) == 3000


def test_lost_documents_that_wait_for_room_are_not_put_into_a_run_that_was_cancelled(hurt: Client, name: str) -> None:
    """The cancel makes the room that they wait for."""
    pool = dq.QueuePool(hurt, name=name, served=True, maxsize=8)
    run = pool.map(double, range(40), name=f"narrow-{name}").wait(timeout=30)
    kill(pool)
    pool.pause()
    run.resubmit_lost()
    while run.counts["ready"] < 7:  # eight, or seven and two that wait: they come in pairs, but for the first
        run.handle.link.check_scheduler()

    cancelled = run.cancel()
    pool.resume()
    pool.put(1).ids  # noqa: B018 - what waited for room has been judged before it
    counts = run.counts
    pool.close(force=True)

    assert cancelled in (7, 8)
    assert {state: n for state, n in counts.items() if n} == {"cancelled": cancelled, "lost": 40 - cancelled}


def test_a_run_that_was_cut_off_and_then_cancelled_is_not_completed_by_mapping_again(
    pool: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dqlab.cluster.scheduler.clients.AWAY", 0.1)
    run = cut_off_and_lost(pool)
    run.cancel()
    before = run.counts

    with pytest.raises((RunCancelled, RunExists)):
        pool.map(double, range(5000), name="cut").results(timeout=30)
    assert run.counts == before


class Held(Again):
    """An input whose second reading stops for a while."""

    def __init__(self, n: int, at: int) -> None:
        super().__init__(n)
        self.at, self.readings, self.reached, self.go_on = at, 0, threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[int]:
        self.readings += 1
        for x in range(self.n):
            if x == self.at and self.readings == 2:
                self.reached.set()
                self.go_on.wait(60)
            yield x


def test_who_was_given_up_while_it_sent_lost_documents_sends_none_behind_its_successor(
    pool: dq.QueuePool, other: Client
) -> None:
    """What both would send could lie in two shards; and the run is complete all the same, for both."""
    documents = Held(3000, at=2500)
    run = pool.map(double, documents, name="overtaken").wait(timeout=30)
    kill(pool)
    run.resubmit_lost()
    assert documents.reached.wait(30)
    run.submitter._claim.give_back()  # type: ignore[union-attr]

    theirs = dq.QueuePool(other, name=pool.name).map(double, range(3000), name="overtaken")
    theirs.resubmit_lost()
    assert list(theirs.results(timeout=30)) == [2 * x for x in range(3000)]
    documents.go_on.set()
    assert run.submitter is not None
    assert run.submitter.join(30)

    assert isinstance(run.submitter.error, NotSentAgain)
    assert list(run.results(timeout=30)) == [2 * x for x in range(3000)]
    assert run.resubmit_lost() == 0
    assert run.counts["acked"] == total(run) == 3000


@pytest.mark.parametrize("silent", mostly_slow(["covered", "dq_claimed"], "dq_claimed"))
def test_limit_of_a_wait_for_a_run_with_losses_holds(
    pool: dq.QueuePool, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pool.map(double, range(100), name="limited").wait(timeout=30)
    kill(pool)
    real_ask, real_scheduler = Handle.ask, Link.scheduler

    async def for_ever() -> Any:
        await asyncio.get_running_loop().create_future()

    async def ask(self: Handle, shard: int, call: calls.Call[Any], *parts: bytes, **how: Any) -> Any:
        hangs = silent == "covered" and isinstance(call, calls.WatchCall) and call.covered
        return await (for_ever() if hangs else real_ask(self, shard, call, *parts, **how))

    async def scheduler(self: Link, op: str, **arguments: Any) -> Any:
        return await (for_ever() if op == silent else real_scheduler(self, op, **arguments))

    monkeypatch.setattr(Handle, "ask", ask)
    monkeypatch.setattr(Link, "scheduler", scheduler)
    waits: list[Callable[[], Any]] = [
        lambda: run.wait(timeout=0.2),
        lambda: run.results(timeout=0.2),
        lambda: list(run.as_completed(timeout=0.2)),
    ]
    for wait in waits:
        began = time.monotonic()
        with pytest.raises(WaitTimeout):
            wait()
        assert time.monotonic() - began < 6


def test_a_shard_that_gives_no_answer_does_not_hide_the_results_of_others(
    two: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = two.map(double, range(6_000), name="half-silent").wait(timeout=30)
    real, theirs = Handle.ask, run._progress().by_shard[1].acked

    async def ask(self: Handle, shard: int, call: calls.Call[Any], *parts: bytes, **how: Any) -> Any:
        if shard == 0 and isinstance(call, calls.StreamCall):
            await asyncio.get_running_loop().create_future()
        return await real(self, shard, call, *parts, **how)

    monkeypatch.setattr(Handle, "ask", ask)
    seen: list[int] = []

    def look() -> None:
        for key, _ in run.as_completed(timeout=0.3):
            seen.append(key)

    with pytest.raises(WaitTimeout):
        look()
    assert len(seen) == theirs > 0


def test_a_run_that_ends_while_it_is_cancelled_is_complete(pool: dq.QueuePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What shards say counts; else nothing that it loses later could be sent again."""
    pool.pause()
    run = pool.map(double, range(10), name="nearly")
    assert run.submitter is not None
    assert run.submitter.join(30)
    real = Handle.keep_note

    async def keep_note(self: Handle, run_id: bytes, facts: dict[str, Any] | None) -> None:
        await real(self, run_id, facts)
        if facts == {"cancelled": True}:
            await self.order(Resume(None))
            while sum((await self.ask_all(calls.WatchCall(run_id, wait=1.0), wait=1.0))[0].lane.counts[:3]):
                pass

    monkeypatch.setattr(Handle, "keep_note", keep_note)
    assert run.cancel() == 0
    kill(pool)
    pool.resume()  # its last report may have been that it was paused

    assert run.resubmit_lost() == 10
    assert list(run.results(timeout=30)) == [2 * x for x in range(10)]


def test_two_threads_that_send_the_same_lost_documents_send_each_once(pool: dq.QueuePool) -> None:
    run = pool.map(double, range(3000), name="twice").wait(timeout=30)
    kill(pool)

    both = [threading.Thread(target=run.resubmit_lost) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()

    assert list(run.results(timeout=30)) == [2 * x for x in range(3000)]
    assert run.counts["acked"] == total(run) == 3000


def test_other_documents_do_not_complete_a_run_whose_client_and_shard_are_both_gone(
    two: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far it came is known outside of the shard."""
    until = threading.Event()
    name = f"cut-{two.name}"
    note = lambda: monkeypatch.setattr("dqlab.runs.submit.mapping.NOTE_EVERY", 0.0)  # noqa: E731
    run = two.map(double, held_up(two, 4000, until, note), name=name)
    submitter, run.submitter = run.submitter, None
    assert submitter is not None
    all_there(two, 4000)
    kill(two, 0)
    run.handle.link.sync(run.handle.ask_all(calls.CutOffCall([run.handle.link.client.id])))

    try:
        with pytest.raises(RunExists, match="other documents"):
            two.map(double, range(1, 5001), name=name).wait(timeout=30)
    finally:
        until.set()
        submitter.join(30)


def test_retries_that_were_asked_for_are_kept_by_a_queue_that_is_made_again(hurt: Client, name: str) -> None:
    pool = dq.QueuePool(hurt, name=name, retry=dq.Retry(0, backoff=0.01))
    dq.ConsumerPool(hurt, pool, retries=2).start()
    kill(pool)
    with pytest.raises(RunFailed):
        pool.submit(wrong, 1).results(timeout=30)

    assert [letter.exceptions for letter in pool.dead()] == [3]
    pool.close(force=True)


@pytest.mark.slow
def test_all_workers_restarted_at_once_leave_queues_empty_and_of_use() -> None:
    """What a user does whose cluster misbehaves, in the middle of a run."""
    with dq.connect(n=2, name="to-be-restarted") as lab:
        _restart_in_the_middle(lab)


def _restart_in_the_middle(lab: dq.Lab) -> None:
    going = threading.Event()

    def documents() -> Iterator[int]:
        for x in range(4000):
            if x == 3000:
                going.wait(60)
            yield x

    two = lab.queue("restarted", n_queues=2)
    ended = two.map(double, range(8000), name="ended").wait(timeout=30)
    run = two.map(double, documents(), name="going")
    waiting.until(lambda: run.counts["acked"] > 0)  # else nothing of it was confirmed, and all of it is sent again
    lab.client.restart()
    lab.client.wait_for_workers(3, timeout=60)
    going.set()

    with pytest.raises(DocumentsLost, match=r"8,000 of 8,000 .* shard 0 .* shard 1 "):
        ended.wait(timeout=40)
    with pytest.raises(DocumentsLost):
        run.wait(timeout=40)
    assert ended.resubmit_lost() == 8000
    assert list(ended.results(timeout=40)) == [2 * x for x in range(8000)]
    counts = run.counts
    assert counts["acked"] + counts["lost"] == total(run) == 4000


def test_a_run_goes_on_in_a_queue_that_was_opened_again_while_its_note_is_out_of_reach(
    pool: dq.QueuePool, other: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noted before anything is confirmed there, and tried again as a put is."""
    more = threading.Event()

    def documents() -> Iterator[int]:
        yield from range(100)
        assert more.wait(30)
        yield from range(100, 200)

    run = pool.map(double, documents(), name="goes-on")
    waiting.until(lambda: run.counts["acked"] == 100)
    dq.QueuePool(other, name=name, served=True).close(force=True)
    dq.QueuePool(other, name=name, served=True).map(double, range(5), name="others").wait(timeout=20)
    real, tries = Handle.keep_note, list[bytes]()

    async def keep_note(self: Handle, run_id: bytes, facts: dict[str, Any] | None) -> None:
        if run_id == run.id:
            tries.append(run_id)
            if len(tries) <= 2:
                raise CallTimeout(name=name, call="keep_note", seconds=1)
        await real(self, run_id, facts)

    monkeypatch.setattr(Handle, "keep_note", keep_note)
    more.set()
    waiting.until(lambda: len(tries) >= 3)
    with pytest.raises(DocumentsLost, match="100 of 200 documents"):  # what the first queue had
        run.wait(timeout=20)
    worker = kill(pool)
    with pytest.raises(DocumentsLost, match=rf"200 of 200 documents .*{worker} died"):
        run.wait(timeout=20)


def test_a_run_that_goes_on_in_a_queue_that_was_opened_again_is_known_when_it_is_lost(
    pool: dq.QueuePool, other: Client, name: str
) -> None:
    """Another client closed the queue and opened it; what was known of its runs beside their shard went with that."""
    more = threading.Event()

    def documents() -> Iterator[int]:
        yield from range(100)
        assert more.wait(30)
        yield from range(100, 200)

    run = pool.map(double, documents(), name="goes-on")
    waiting.until(lambda: run.counts["acked"] == 100)
    dq.QueuePool(other, name=name, served=True).close(force=True)
    again = dq.QueuePool(other, name=name, served=True)
    again.map(double, range(5), name="others").wait(timeout=20)
    more.set()
    waiting.until(lambda: sum(pool.counts().values()) > 100)  # before that the queue does not have the run
    lost = rf"100 of 200 documents .*in memory, in queue '{name}', when a client closed it"
    with pytest.raises(DocumentsLost, match=lost):
        run.wait(timeout=20)
    worker = kill(pool)

    with pytest.raises(DocumentsLost, match=rf"200 of 200 documents .*{worker} died"):
        run.wait(timeout=20)
    assert len(run.lost()) == 200
