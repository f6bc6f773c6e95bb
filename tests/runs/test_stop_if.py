"""A run that fails throughout pauses itself, reports it to a waiting client, and goes on with mended code."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.errors import AllFailed, BadOption
from tests.kit.waiting import until

DOCUMENTS = 800


def broken(x: int) -> int:
    raise KeyError("total")


async def broken_coroutine(x: int) -> int:
    await asyncio.sleep(0)
    raise KeyError("total")


def mended(x: int) -> int:
    return 2 * x


def slow(x: int, seconds: float = 0.002) -> int:
    """Take long enough that a chunk does not hold all documents."""
    import time

    time.sleep(seconds)
    raise KeyError("total")


def slow_or_odd(x: int) -> int:
    return slow(x) if x % 4 == 0 else x


WAYS: dict[str, Callable[[dq.Run], Any]] = {
    "wait": lambda run: run.wait(timeout=30),
    "results": lambda run: run.results(timeout=30),
    "skip": lambda run: run.results(errors="skip", timeout=30),
    "as_completed": lambda run: list(run.as_completed(timeout=30)),
}


def halted(queue: dq.QueuePool, **more: Any) -> dq.Run:
    """Return a run that has paused itself."""
    run = queue.map(slow, range(DOCUMENTS), retry=dq.Retry(0), **more)
    with pytest.raises(AllFailed):
        run.wait(timeout=30)
    until(lambda: run.counts["leased"] == 0)  # what was in hand fails a moment later, whatever is ordered then
    return run


def numbers_of(sentence: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", sentence)]


@pytest.mark.parametrize("fn", [slow, broken_coroutine])
def test_who_waits_learns_at_once_that_everything_fails(queue: dq.QueuePool, fn: Any) -> None:
    """Threads and coroutines: what failed and how often, what became of the rest, and what to do next."""
    run = queue.map(fn, range(100 * DOCUMENTS if fn is broken_coroutine else DOCUMENTS), retry=dq.Retry(0))

    with pytest.raises(AllFailed, match=r"failed with KeyError: 'total'\. Nothing is lost: of") as raised:
        run.wait(timeout=30)

    total, *parts = numbers_of(raised.value.now)
    assert total == sum(parts)
    assert parts[0] == raised.value.dead >= 100
    counts = run.counts
    assert counts["dead"] >= 100
    assert counts["acked"] == 0
    assert counts["dead"] + counts["ready"] + counts["leased"] == sum(counts.values())
    assert "rest=True" in str(raised.value)
    assert "run.resume()" in str(raised.value)
    stats = run.stats()
    assert stats.state == "stopped"
    assert "KeyError" in stats.why


def test_every_way_to_wait_raises_it(queue: dq.QueuePool) -> None:
    """Also for who comes later, and for who takes what there is."""
    run = halted(queue)

    for wait in WAYS.values():
        with pytest.raises(AllFailed):
            wait(run)


def test_the_mended_function_runs_on_all_of_it(queue: dq.QueuePool) -> None:
    """The line that the error names is all that it takes."""
    run = halted(queue)

    run.retry(fn=mended, rest=True)

    assert list(run.results(timeout=30)) == [2 * x for x in range(DOCUMENTS)]


def test_resume_goes_on_regardless(queue: dq.QueuePool) -> None:
    """To the end, without another pause."""
    run = halted(queue).resume()

    run.wait(timeout=60)

    assert run.counts["dead"] == DOCUMENTS


def test_a_run_that_has_failed_to_its_end_is_done_and_never_paused(queue: dq.QueuePool) -> None:
    """Of a fast function all that was in hand when the limit was reached has run: nothing waits that could be saved."""
    run = queue.map(broken, range(300), retry=dq.Retry(0))
    with contextlib.suppress(AllFailed):
        run.wait(timeout=30)

    left = 300 - run.counts["dead"]

    assert run.stats().state == ("stopped" if left else "done")


def test_it_can_be_switched_off_and_set(queue: dq.QueuePool) -> None:
    """A run that looks for the few that work is a run as well."""
    never = queue.map(broken, range(500), retry=dq.Retry(0), stop_if=None)
    assert never.wait(timeout=30).counts["dead"] == 500
    soon = queue.map(slow, range(DOCUMENTS), retry=dq.Retry(0), stop_if=3)
    with pytest.raises(AllFailed):
        soon.wait(timeout=30)
    share = queue.map(slow_or_odd, range(DOCUMENTS), retry=False, stop_if=0.05)
    with pytest.raises(AllFailed, match=r"of its first \d+ documents failed with KeyError"):
        share.wait(timeout=30)
    assert share.counts["acked"] > 0
    assert share.counts["ready"] > 0
    for wrong in (0, -1, True, "never"):
        with pytest.raises(BadOption, match="stop_if"):
            queue.map(broken, range(5), stop_if=wrong)  # type: ignore[arg-type]


def test_a_run_that_paused_itself_stays_so_when_its_queue_is_opened_again(
    client: Client, queue_name: str, tmp_path: Path
) -> None:
    """From the log and from a checkpoint; who attaches is told why, and `resume` goes on for good."""

    def open_queue() -> dq.QueuePool:
        return dq.QueuePool(client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path)

    pool = open_queue()
    pool.session.serve(pool)
    run = halted(pool, name=queue_name)
    dead = run.counts["dead"]
    for _ in range(2):
        pool.close()
        pool = open_queue()
        run = pool.session.runs.attach(queue_name)
        with pytest.raises(AllFailed, match="KeyError"):
            run.wait(timeout=30)
        assert run.counts["dead"] >= dead
    run.resume()
    pool.session.serve(pool)
    run.wait(timeout=60)
    assert run.counts["dead"] == DOCUMENTS
    pool.close()
