"""Names: the same run again, a new one, or a clear refusal; so that "Run All" is safe."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from distributed import Client

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.errors import (
    BadOption,
    CallTimeout,
    DqlabWarning,
    PutError,
    PutFailed,
    RunExists,
    RunNotFound,
    SubmissionIncomplete,
)
from dqlab.runs.code import versions
from dqlab.runs.code.sealing import Uncomparable
from dqlab.runs.run_book import _some_of
from dqlab.runs.submit import sender
from dqlab.testing import Tally
from tests.kit.sampled import mostly_slow
from tests.runs.submit.test_cut_off import all_there

pytestmark = pytest.mark.lowest


def same(x: int) -> int:
    return x


def double(x: int) -> int:
    return 2 * x


def odd_fails(x: int) -> int:
    if x % 2:
        raise ValueError(x)
    return x


@pytest.fixture
def name(queue_name: str) -> str:
    return f"run-{queue_name}"


def test_two_clients_that_map_under_one_name_at_the_same_moment_share_one_run(
    queue: dq.QueuePool, client: Client, name: str
) -> None:
    """Two people run the same notebook; there were two runs of that name."""
    with Client(client.scheduler.address, set_as_default=False) as second:
        theirs = dq.QueuePool(second, name=queue.name)
        for at in range(5):
            start, runs = threading.Barrier(2), []

            def submit(pool: dq.QueuePool, at: int = at, start: threading.Barrier = start) -> None:
                start.wait(20)
                runs.append(pool.map(same, range(100), name=f"{name}-{at}"))  # noqa: B023 - joined in the same turn

            both = [threading.Thread(target=submit, args=(pool,)) for pool in (queue, theirs)]
            for thread in both:
                thread.start()
            for thread in both:
                thread.join()

            assert len({run.id for run in runs}) == 1
            assert [list(run.results(timeout=20)) for run in runs] == [list(range(100))] * 2


def test_a_wait_for_a_name_holds_up_no_other(queue: dq.QueuePool, client: Client, name: str) -> None:
    with Client(client.scheduler.address, set_as_default=False) as second:
        link, claim = dq.QueuePool(second, name=queue.name).handle.link, {"what": f"name/{name}", "token": "t"}
        assert link.sync(link.scheduler("dq_claim", client=second.id, wait=0.0, **claim))
        runs: list[dq.Run] = []
        waits = threading.Thread(target=lambda: runs.append(queue.map(same, range(3), name=name)))
        waits.start()

        assert list(queue.map(same, range(3)).results(timeout=20)) == [0, 1, 2]
        assert not runs
        link.sync(link.scheduler("dq_disclaim", **claim))
        waits.join(20)

    assert list(runs[0].results(timeout=20)) == [0, 1, 2]


def test_same_name_code_and_documents_is_the_same_run(queue: dq.QueuePool, name: str, tmp_path: Path) -> None:
    """The second "Run All" computes nothing."""
    tally = Tally(tmp_path)

    def noted(x: int) -> int:
        tally.add(x)
        return x

    first = queue.map(noted, range(20), name=name)
    values = list(first.results(timeout=20))
    again = queue.map(noted, range(20), name=name)

    assert list(again.results(timeout=20)) == values
    assert again.id == first.id
    assert len(tally) == 20


def test_other_code_under_the_same_name_is_refused_with_both_ways_out(queue: dq.QueuePool, name: str) -> None:
    """Results of two versions must not mix without anybody noticing."""
    first = queue.map(same, range(5), name=name).wait(timeout=20)

    with pytest.raises(RunExists, match=r"on_existing='new'.*on_existing='retry-failed'"):
        queue.map(double, range(5), name=name)

    assert list(first.results()) == list(range(5))


@pytest.mark.parametrize("other", [[0, 1, 2, 3, 5], [0, 1, 2], list(range(9))], ids=["changed", "fewer", "more"])
def test_other_documents_under_the_same_name_are_refused(queue: dq.QueuePool, name: str, other: list[int]) -> None:
    """By `map`, or later by `results`; the error advised "retry-failed", which is refused too."""
    queue.map(same, range(5), name=name).wait(timeout=20)

    with pytest.raises(RunExists, match=r"documents.*Another name= keeps both; on_existing='new'") as refused:
        queue.map(same, other, name=name).results(timeout=20)
    assert "retry-failed" not in str(refused.value)
    with pytest.raises(RunExists, match=r"documents.*Another name= keeps both; on_existing='new'"):
        queue.map(same, other, name=name, on_existing="retry-failed").results(timeout=20)
    assert list(queue.map(same, other, name=f"{name}-2").results(timeout=20)) == other
    assert list(queue.map(same, other, name=name, on_existing="new").results(timeout=20)) == other


def test_new_starts_over(queue: dq.QueuePool, name: str) -> None:
    """The old run's results are dropped; the name belongs to the new one."""
    first = queue.map(same, range(5), name=name).wait(timeout=20)

    second = queue.map(double, range(3), name=name, on_existing="new")

    assert list(second.results(timeout=20)) == [0, 2, 4]
    with pytest.raises(RunNotFound):
        _ = first.counts


def test_retry_failed_runs_the_new_code_on_the_dead_only(queue: dq.QueuePool, name: str) -> None:
    """Edit the cell, run it again: only what failed is done again."""
    queue.map(odd_fails, range(6), name=name, retry=dq.Retry(0)).wait(timeout=20)

    run = queue.map(double, range(6), name=name, on_existing="retry-failed")

    assert list(run.results(timeout=20)) == [0, 2, 2, 6, 4, 10]


def test_retry_failed_where_nothing_failed_says_that_results_are_those_of_the_old_code(
    queue: dq.QueuePool, name: str
) -> None:
    """The old results came back without a word: nothing runs with the edited cell."""
    queue.map(same, range(3), name=name).wait(timeout=20)

    with pytest.warns(DqlabWarning, match=r"those of same v1\. on_existing='new' drops them and runs all"):
        run = queue.map(double, range(3), name=name, on_existing="retry-failed")

    assert list(run.results(timeout=20)) == [0, 1, 2]
    run = queue.map(same, range(3), name=name, on_existing="retry-failed")  # its own code: without a warning
    assert list(run.results(timeout=20)) == [0, 1, 2]


class Held:
    """An input whose second reading waits."""

    def __init__(self, n: int) -> None:
        self.n, self.readings, self.goes_on = n, 0, threading.Event()

    def __iter__(self) -> Iterator[int]:
        self.readings += 1
        if self.readings > 1:
            self.goes_on.wait(20)
        return iter(range(self.n))


def test_retry_failed_runs_the_function_as_it_was_when_it_was_mapped(queue: dq.QueuePool, name: str) -> None:
    """Its input is compared first; what its names mean then is another cell's doing."""
    held, meaning = Held(6), ["as mapped"]
    queue.map(odd_fails, held, name=name, retry=dq.Retry(0)).wait(timeout=20)

    run = queue.map(lambda x: meaning[0], held, name=name, on_existing="retry-failed")
    meaning[0] = "defined later"
    held.goes_on.set()

    assert list(run.results(timeout=20)) == [0, "as mapped", 2, "as mapped", 4, "as mapped"]


class Opaque:
    """Tells nothing of what it holds; can be sent all the same."""

    def __init__(self, held: int) -> None:
        self.held = held

    def __reduce_ex__(self, protocol: object) -> Any:
        if protocol == 4:  # as code versions ask
            raise TypeError
        return Opaque, (self.held,)


def test_attaching_names_what_could_not_be_compared(queue: dq.QueuePool, name: str) -> None:
    """Silence would pass off yesterday's results as those of today's model."""
    model = Opaque(1)

    def work(x: int) -> int:
        return x + model.held

    queue.map(work, range(3), name=name).wait(timeout=20)

    for _ in range(2):  # each time, not once a line
        with pytest.warns(Uncomparable, match=r"cannot compare `model`: use on_existing='new' if it changed"):
            queue.map(work, range(3), name=name).wait(timeout=20)


def test_run_of_an_earlier_release_is_compared_by_its_text(
    queue: dq.QueuePool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its versions were computed in another way: a refusal would cost the run, and silence could give old results."""
    monkeypatch.setattr(versions, "_SCHEME", "1")
    first = queue.map(same, range(3), name=name).wait(timeout=20)
    monkeypatch.undo()

    with pytest.warns(Uncomparable, match="made by an earlier dqlab"):
        assert queue.map(same, range(3), name=name).wait(timeout=20).id == first.id
    with pytest.raises(RunExists, match="other code"):
        queue.map(lambda x: x, range(3), name=name)


def test_attach_finds_a_run_by_name(lab: dq.Lab, queue: dq.QueuePool, name: str) -> None:
    """Another cell, or another notebook, has only the name."""
    run = queue.map(same, range(5), name=name).wait(timeout=20)

    found = lab.attach(name)

    assert found.id == run.id
    assert list(found.results(timeout=20)) == list(range(5))


def test_attach_to_an_unknown_name_says_which_there_are(lab: dq.Lab, queue: dq.QueuePool, name: str) -> None:
    """A slip in a name is answered with the name that was meant."""
    name = f"A-{name}"  # first of those that tests before this one have left
    queue.map(same, range(2), name=name).wait(timeout=20)

    with pytest.raises(RunNotFound, match=f"Did you mean '{name}'") as caught:
        lab.attach(name + "x")

    assert name in caught.value.known
    assert _some_of([f"run-{n}" for n in range(90)]).endswith("run-11, and 78 more (lab.all_runs() has all)")
    assert _some_of(["a", "b"]) == "a, b"


@pytest.mark.parametrize(
    ("documents", "way_out"),
    [
        (pd.DataFrame({"text": ["a"], "n": [1]}), r"column names.*from_frame\(df\).*df\['text'\]"),
        ({"a": 1}, r"its keys.*d\.values\(\).*d\.items\(\)"),
        (Counter("abc"), "its keys"),
        ("papers/*.txt", "its characters"),
        (b"abc", "its characters"),
        ({"a", "b"}, r"set of 2 elements.*order.*differs.*sorted\(x\)"),
        (frozenset("a"), r"order.*sorted\(x\)"),
        (pd.DataFrame({"text": ["a"]}).groupby("text"), r"pairs of key and table.*for key, table in"),
    ],
    ids=["frame", "dict", "counter", "text", "bytes", "set", "frozenset", "groups"],
)
def test_what_iterates_as_something_else_than_its_documents_is_refused_with_the_ways_out(
    queue: dq.QueuePool, documents: Any, way_out: str
) -> None:
    """Three column names mapped in silence look like a run that worked."""
    with pytest.raises(BadOption, match=way_out):
        queue.map(same, documents)

    assert sum(queue.counts().values()) == 0


@pytest.mark.parametrize("view", [{"b": 1, "a": 2}.keys(), {1: "b", 2: "a"}.values()], ids=["keys", "values"])
def test_views_of_a_dict_are_in_its_order(queue: dq.QueuePool, view: Any) -> None:
    """A view of keys is a `Set` to Python as well, but one whose order is that of the program."""
    assert list(queue.map(same, view).results(timeout=20)) == ["b", "a"]


def test_wrong_options_are_refused_before_anything_is_sent(queue: dq.QueuePool) -> None:
    """Nothing half-made stays behind."""
    with pytest.raises(BadOption, match="on_existing"):
        queue.map(same, [1], on_existing="overwrite")  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="consumers"):
        queue.map(same, [1], consumers=3)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="two-words"):
        queue.map(same, [1], name="two words")
    with pytest.raises(BadOption, match="documents"):
        queue.map(same, 7)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="fn"):
        queue.map("same", [1])  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="fn"):
        queue.map([1], same)  # type: ignore[arg-type]

    assert sum(queue.counts().values()) == 0


def cut_off(n: int) -> Iterator[int]:
    yield from range(n)
    raise OSError("the share is gone")


def test_mapping_again_completes_a_cut_off_run(queue: dq.QueuePool, name: str, tmp_path: Path) -> None:
    """The share is back: what was done stays done, the rest is done now."""
    tally = Tally(tmp_path)

    def noted(x: int) -> int:
        tally.add(x)
        return x * x

    first = queue.map(noted, cut_off(1500), name=name)
    with pytest.raises(SubmissionIncomplete):
        first.wait(timeout=20)

    run = queue.map(noted, range(4000), name=name)

    assert run.id == first.id
    results = run.results(timeout=30)
    assert list(results.items()) == [(x, x * x) for x in range(4000)]
    assert len(tally) == 4000
    assert run.stats().total == 4000
    assert run.state == "done"


def draining(pool: dq.QueuePool, shards: list[int], at: int, n: int) -> Iterator[int]:
    """Yield numbers; at one of them, when something has been put, some shards refuse further puts."""
    for x in range(n):
        if x == at:
            all_there(pool, 1)
            for shard in shards:
                pool.handle.link.sync(pool.handle.ask(shard, calls.ControlCall({"op": "drain"})))
        yield x


@pytest.mark.parametrize(
    ("shards", "refusing"), mostly_slow([(1, [0]), (3, [0, 1, 2]), (3, [0]), (3, [1, 2])], (1, [0]), (3, [1, 2]))
)
def test_mapping_again_completes_a_run_whose_puts_were_refused(
    lab: dq.Lab, name: str, tmp_path: Path, shards: int, refusing: list[int]
) -> None:
    """Whatever the shards had taken by then, also with gaps between: every document is done once."""
    tally = Tally(tmp_path)

    def noted(x: int) -> int:
        tally.add(x)
        return -x

    pool = lab.queue(f"q-{name}", n_queues=shards)
    first = pool.map(noted, draining(pool, refusing, 10_000, 25_000), name=name)
    with pytest.raises(PutError):
        first.wait(timeout=30)
    taken = sum(first.counts.values())
    pool.resume()
    run = pool.map(noted, range(25_000), name=name)

    results = run.results(timeout=60)
    assert 0 < taken < 25_000
    assert run.id == first.id
    assert len(results) == run.stats().total == 25_000
    assert all(value == -x for x, value in results.items())
    assert len(tally) == 25_000
    assert run.state == "done"
    pool.close()


def test_frame_whose_confirmation_was_lost_is_not_put_again(
    lab: dq.Lab, queue: dq.QueuePool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue took it; only the answer never came."""
    ask, lost = Handle.ask, []

    async def deaf(self: Handle, shard: int, call: calls.Call[Any], *rest: Any, **options: Any) -> Any:
        answer = await ask(self, shard, call, *rest, **options)
        if isinstance(call, calls.PutCall):
            lost.append(answer)
            raise PutFailed(queue="queue", count=1, reason="the answer never came")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Handle, "ask", deaf)
        with pytest.raises(PutFailed):
            queue.map(same, range(3000), name=name).wait(timeout=30)
    assert lost

    run = queue.map(same, range(3000), name=name)
    assert list(run.results(timeout=30)) == list(range(3000))
    assert run.counts["acked"] == 3000


def test_frames_whose_confirmations_were_lost_are_put_again_and_counted_once(
    queue: dq.QueuePool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run tries for as long as its queue does not answer, which may have taken them."""
    ask, lost = Handle.ask, []

    async def deaf(self: Handle, shard: int, call: calls.Call[Any], *rest: Any, **options: Any) -> Any:
        answer = await ask(self, shard, call, *rest, **options)
        if isinstance(call, calls.PutCall) and len(lost) < 10:
            lost.append(answer)
            raise CallTimeout(name="queue", call=call.method, seconds=0.0)
        return answer

    monkeypatch.setattr(Handle, "ask", deaf)
    monkeypatch.setattr(sender, "CONFIRM_WAIT", 0.0)
    run = queue.map(same, range(3000), name=name)
    assert run.results(timeout=30)[:] == list(range(3000))
    assert len(lost) == 10
    assert run.counts["acked"] == 3000


def test_run_ends_although_its_queue_was_out_of_reach_when_its_input_ended(
    queue: dq.QueuePool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shards are being recreated, and that takes longer than a call waits; no other client could end the run."""
    ask, lost = Handle.ask, []

    async def away(self: Handle, shard: int, call: calls.Call[Any], *rest: Any, **options: Any) -> Any:
        if isinstance(call, calls.ControlCall) and call.message["op"] == "seal" and len(lost) < 3:
            lost.append(call)
            raise CallTimeout(name="queue", call=call.method, seconds=0.0)
        return await ask(self, shard, call, *rest, **options)

    monkeypatch.setattr(Handle, "ask", away)
    run = queue.map(same, range(3000), name=name)
    assert list(run.results(timeout=30)) == list(range(3000))
    assert len(lost) == 3


def test_cut_off_run_is_completed_by_another_client(lab: dq.Lab, queue: dq.QueuePool, name: str) -> None:
    """The notebook that began it is gone."""
    with pytest.raises(SubmissionIncomplete):
        queue.map(same, cut_off(1500), name=name).wait(timeout=20)

    with Client(lab.client.scheduler.address, set_as_default=False) as client:
        there = dq.QueuePool(client, name=queue.name)
        assert list(there.map(same, range(2000), name=name).results(timeout=20)) == list(range(2000))


def test_two_notebooks_that_map_the_same_at_the_same_time_share_one_run(
    lab: dq.Lab, queue: dq.QueuePool, name: str, tmp_path: Path
) -> None:
    """The second one attaches, and puts nothing while the first one goes on."""
    tally, goes_on = Tally(tmp_path), threading.Event()

    def documents() -> Iterator[int]:
        yield from range(1500)
        goes_on.wait(30)
        yield from range(1500, 2000)

    def work(x: int) -> int:
        tally.add(x)
        return -x

    first = queue.map(work, documents(), name=name)
    with Client(lab.client.scheduler.address, set_as_default=False) as client:
        second = dq.QueuePool(client, name=queue.name).map(work, range(2000), name=name)
        assert second.submitter is not None
        assert not second.submitter.sending
        goes_on.set()
        assert list(second.results(timeout=30)) == list(first.results(timeout=30)) == [-x for x in range(2000)]
    assert sorted(int(x) for x in tally.seen()) == list(range(2000))


def test_runs_and_calls_in_a_durable_queue_that_another_client_made_again_have_consumers_again(
    lab: dq.Lab, queue_name: str, tmp_path: Path
) -> None:
    """A client that puts has asked for consumers once; they went with the queue, and no consumer came for the calls."""
    stored: dict[str, Any] = {"name": queue_name, "durability": dq.Durability.DURABLE, "dirpath": tmp_path}
    queue = dq.QueuePool(lab.client, served=True, **stored)
    assert queue.submit(same, 1).results(timeout=20) == [1]
    with Client(lab.client.scheduler.address, set_as_default=False) as client:
        for turn in range(3):
            dq.QueuePool(client, **stored).close(force=True)
            there = dq.QueuePool(client, **stored)
            assert queue.batch_submit([(same, turn), (same, -turn)]).results(timeout=20) == [turn, -turn]
            assert list(queue.map(same, range(5)).results(timeout=20)) == list(range(5))
            assert len(there) == 1
    queue.close(force=True)


def test_queue_that_is_gone_is_opened_again_without_closing_what_another_client_has_opened(
    lab: dq.Lab, queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was closed by its name, and by then that name was another queue's."""
    with Client(lab.client.scheduler.address, set_as_default=False) as client:
        dq.QueuePool(client, name=queue.name).close(force=True)
        theirs = dq.QueuePool(client, name=queue.name)
        monkeypatch.setattr(queue.handle, "missing", _gone)
        assert len(theirs.put_many([1, 2, 3]).ids) == 3

        again = lab.queue(queue.name)

        assert again is not queue
        assert queue.closed
        assert theirs.counts()["ready"] == again.counts()["ready"] == 3
        again.close(force=True)


async def _gone() -> tuple[bool, bool]:
    return True, False


def test_unnamed_run_does_not_take_the_name_of_a_named_one(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """Whether the cluster has heard of that one yet or not."""

    def fresh(x: int) -> int:
        return x

    named = [queue.map(fresh, range(2), name=f"fresh-{number}") for number in (1, 2)]

    assert queue.map(fresh, range(2)).wait(timeout=20).name == "fresh-3"
    assert [len(run.results(timeout=20)) for run in named] == [2, 2]


def test_a_queue_that_does_not_answer_is_named_as_the_place_where_a_run_may_be(
    lab: dq.Lab, queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be busy: "there is no such run" would have the run made once more."""

    class Silent(Handle):
        async def ask(self, *args: Any, **options: Any) -> Any:
            if self.name == queue.name:
                await asyncio.Event().wait()
            return await super().ask(*args, **options)

    queue.map(abs, range(5), name=f"run-{queue.name}").wait(timeout=30)
    monkeypatch.setattr("dqlab.lab.Handle", Silent)
    monkeypatch.setattr("dqlab.lab.PATIENCE", 0.2)

    with dq.connect(lab.client.scheduler.address) as other:  # type: ignore[union-attr]
        warned = pytest.warns(DqlabWarning, match=f"queue '{queue.name}' did not answer within 0.2 s")
        with warned, pytest.raises(RunNotFound, match=f"may be in queue '{queue.name}': no answer came within 0.2 s"):
            other.attach(f"run-{queue.name}")
        assert other.queues == []
        with pytest.warns(DqlabWarning, match=f"a run 'run-{queue.name}' of another client there is not found"):
            other.map(abs, [1], name=f"run-{queue.name}")


def test_looking_for_a_run_that_does_not_exist_opens_no_queue(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """A typing error in one notebook must not keep a queue open that another one closes."""
    queue.put(1)
    queue.flush()

    with dq.connect(lab.client.scheduler.address) as other:  # type: ignore[union-attr]
        with pytest.raises(RunNotFound):
            other.attach("no-such-run")
        assert other.queues == []
        queue.close()  # raises UsageError when another client has it open


def test_run_that_another_client_started_over_or_dropped_is_not_taken_for_the_old_one(
    lab: dq.Lab, queue: dq.QueuePool, name: str
) -> None:
    """Two notebooks on one cluster: the first could neither attach to that name nor map under it ever again."""
    queue.map(same, range(3), name=name).wait(timeout=30)
    with Client(lab.client.scheduler.address, set_as_default=False) as client:  # type: ignore[union-attr]
        there = dq.QueuePool(client, name=queue.name)
        newer = there.map(double, range(3), name=name, on_existing="new").wait(timeout=30)

        assert [run.id for run in lab.session.runs.everything() if run.name == name] == [newer.id]
        assert list(lab.attach(name).results(timeout=30)) == [0, 2, 4]
        assert queue.map(double, range(3), name=name).id == newer.id

        newer.drop()
        with pytest.raises(RunNotFound):
            lab.attach(name)
        assert list(queue.map(same, range(3), name=name).results(timeout=30)) == [0, 1, 2]
