"""What people still hold when their lab is closed says so, whatever they do with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import AllFailed, DqlabWarning, LabClosed, RunNotFound
from tests.kit.sampled import mostly_slow

pytestmark = [pytest.mark.lowest, pytest.mark.cluster]


def same(x: int) -> int:
    return x


def fail(x: int) -> int:
    raise ValueError(x)


@dataclass
class Held:
    """Everything that a session left in variables."""

    lab: dq.Lab
    pool: dq.QueuePool
    run: dq.Run
    results: Any
    failures: Any
    put: Any
    consumers: dq.ConsumerPool


def hold(lab: dq.Lab, name: str) -> Held:
    pool = lab.queue(name)
    run = pool.map(same, range(5000), name=f"{name}-held").wait(timeout=30)
    failed = pool.map(fail, [1], retry=dq.Retry(0)).wait(timeout=30)
    put = pool.submit(same, 1)
    put.results(timeout=20)
    consumers = dq.ConsumerPool(lab.client, pool, n_consumers=1)
    consumers.start()
    return Held(lab, pool, run, run.results(), failed.failures(), put, consumers)


@pytest.fixture(scope="module")
def ended() -> Held:
    """A lab that started its cluster, closed."""
    lab = dq.connect(n=1, name="ended")
    held = hold(lab, "ended")
    lab.close()
    return held


@pytest.fixture(scope="module")
def left(dq_lab: dq.Lab) -> Iterator[Held]:
    """A lab on a cluster that goes on, closed."""
    lab = dq.connect(str(dq_lab.client.scheduler.address), name="left")
    held = hold(lab, "left-alone")
    held.consumers.cancel()
    lab.close()
    yield held
    dq_lab.queue("left-alone").close(force=True)


USES: dict[str, Callable[[Held], object]] = {
    "lab.map": lambda held: held.lab.map(same, [1]),
    "lab.queue": lambda held: held.lab.queue("another"),
    "lab.attach": lambda held: held.lab.attach(held.run.name),
    "lab.stats": lambda held: held.lab.stats(),
    "lab.wait_for_change": lambda held: held.lab.wait_for_change(0),
    "pool.map": lambda held: held.pool.map(same, [1]),
    "pool.submit": lambda held: held.pool.submit(same, 1),
    "pool.put_many": lambda held: held.pool.put_many([1]),
    "pool.flush": lambda held: held.pool.flush(),
    "pool.counts": lambda held: held.pool.counts(),
    "pool.stats": lambda held: held.pool.stats(),
    "pool.unacked": lambda held: held.pool.unacked(),
    "pool.dead": lambda held: held.pool.dead(),
    "pool.pause": lambda held: held.pool.pause(),
    "pool.purge": lambda held: held.pool.purge(),
    "pool[0]": lambda held: held.pool[0].qsize(),
    "run.wait": lambda held: held.run.wait(),
    "run.results": lambda held: held.run.results(),
    "run.as_completed": lambda held: next(held.run.as_completed()),
    "run.counts": lambda held: held.run.counts,
    "run.stats": lambda held: held.run.stats(timeout=1),
    "run.failures": lambda held: held.run.failures(),
    "run.retry": lambda held: held.run.retry(),
    "run.cancel": lambda held: held.run.cancel(),
    "run.drop": lambda held: held.run.drop(),
    "results[i]": lambda held: held.results[3],
    "list(results)": lambda held: list(held.results),
    "results.to_frame": lambda held: held.results.to_frame(),
    "list(failures)": lambda held: list(held.failures),
    "put.ids": lambda held: held.put.ids,
    "put.results": lambda held: held.put.results(),
    "consumers.join": lambda held: held.consumers.join(),
    "consumers.results": lambda held: held.consumers.results(),
    "consumers.nb_consumed": lambda held: held.consumers.nb_consumed(),
    "consumers.start": lambda held: dq.ConsumerPool(held.lab.client, held.pool).start(),
}


@pytest.mark.parametrize("use", USES)
def test_everything_of_a_closed_lab_says_that_it_is_closed(ended: Held, use: str) -> None:
    """ "RuntimeError: Event loop is closed" names neither the lab nor what to do."""
    with pytest.raises(LabClosed, match=r"lab 'ended' was closed.*dq.connect\(\)"):
        USES[use](ended)


@pytest.mark.parametrize("use", USES)
def test_what_is_left_in_a_cluster_is_said_to_be_there(left: Held, use: str) -> None:
    """A lab that only took leave lost nothing."""
    with pytest.raises(LabClosed, match=r"lab 'left' was closed.*stay there"):
        USES[use](left)


def test_run_is_named(ended: Held) -> None:
    """Which of a dozen runs was asked."""
    with pytest.raises(LabClosed, match="run 'ended-held'") as caught:
        ended.run.wait()
    with pytest.raises(LabClosed, match="run 'ended-held'"):
        list(ended.results)
    with pytest.raises(LabClosed, match="queue 'ended'"):
        ended.pool.counts()

    assert caught.value.lab == "ended"


def test_what_is_in_a_store_is_said_to_be_there_with_the_lines_that_bring_it_back(tmp_path: Path) -> None:
    """It said that the run was gone, and to map the documents again."""
    store = tmp_path / "store"
    cut_short = pytest.warns(DqlabWarning, match=r"run 'gone' \(lost\) were not done.*Let a run end before you close")
    with cut_short, dq.connect(n=1, name="stored", store=store) as lab:
        run = lab.map(same, range(10), name="kept").wait(timeout=30)
        results, pool = run.results(), lab.queue("other")
        in_memory = dq.QueuePool(lab.client, name="memory").map(same, [1], name="gone", consumers=None)
    with dq.connect(n=1, name="unkept") as other, pytest.raises(RunNotFound, match="has no store"):
        other.attach("kept")
    opened = rf"lab = dq\.connect\(store={re.escape(repr(str(store)))}\)"

    for use in (run.wait, lambda: list(results), lambda: run.counts, run.failures):
        with pytest.raises(LabClosed, match=rf"run 'kept'.*is in the store.*{opened}.*lab\.attach\('kept'\)") as caught:
            use()
        assert "gone" not in str(caught.value)
    with pytest.raises(LabClosed, match=rf"queue 'other'.*is in the store.*{opened}.*lab\.queue\('other'\)"):
        pool.counts()
    with pytest.raises(LabClosed, match=rf"its queues is in the store.*{opened}"):
        lab.attach("kept")
    with pytest.raises(LabClosed, match=r"transient queues is gone.*then map the documents again"):
        in_memory.wait()

    with dq.connect(n=1, store=store) as lab:
        assert list(lab.attach("kept").results(timeout=30)) == list(range(10))


def test_closing_twice_and_looking_do_no_harm(ended: Held) -> None:
    """What shows itself at the end of a cell must not raise."""
    ended.lab.close()
    ended.pool.close()

    assert "closed" in repr(ended.lab)
    assert "closed" in repr(ended.pool)
    assert "ended-held" in repr(ended.run)
    assert "5,000" in repr(ended.results)
    assert len(ended.results) == 5000


def test_closing_while_documents_are_being_submitted_is_no_fault_of_theirs(dq_lab: dq.Lab) -> None:
    """Their iterable did not raise."""
    lab = dq.connect(str(dq_lab.client.scheduler.address), name="hasty")
    run = lab.queue("hasty").map(same, count())
    next(run.as_completed(timeout=20))
    lab.close()

    with pytest.raises(LabClosed, match="run 'same-"):
        run.wait(timeout=5)
    assert run.submitter is not None
    assert run.submitter.join()
    dq_lab.queue("hasty").close(force=True)


PAUSED = list(product([fail, same], [False, True]))  # it paused itself, or its user did


@pytest.mark.parametrize(("fn", "kept"), mostly_slow(PAUSED, PAUSED[0], PAUSED[3]))
def test_closing_with_a_paused_run_does_not_advise_to_wait_for_it(
    tmp_path: Path, fn: Callable[[int], int], kept: bool
) -> None:
    """`run.wait()` would have raised, or never have ended."""
    lab = dq.connect(n=1, name="halting", store=tmp_path if kept else None)
    pool = lab.queue("halting")
    if fn is same:
        pool.pause()
    run = pool.map(fn, range(5000), name="halted", retry=dq.Retry(0), stop_if=2)
    if fn is same:
        run.pause()
        pool.resume()
    else:
        with pytest.raises(AllFailed):
            run.wait(timeout=30)

    with pytest.warns(DqlabWarning, match=r"'halted' .*were not done") as told:
        lab.close()

    [said] = [str(one.message) for one in told if "were not done" in str(one.message)]
    assert "run.wait" not in said
    assert ("dq.connect(store=" in said) is kept
