"""Code of users may raise anything, also what Python itself uses to say that something ends."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import NotPicklable, ResultUnreadable, SubmissionIncomplete
from tests.kit.sampled import mostly_slow
from tests.kit.waiting import until


class Panic(BaseException):
    """No `Exception`, like the panics of extensions in Rust."""


KINDS = [StopIteration, StopAsyncIteration, GeneratorExit, SystemExit, Panic]


def throw(kind: type[BaseException]) -> object:
    raise kind


class Opened:
    """Can be pickled; unpickling it raises."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> tuple[Any, ...]:
        return throw, (self.kind,)


class Closed:
    """Pickling it raises."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> tuple[Any, ...]:
        raise self.kind


def opened(number: int) -> object:
    return Opened(KINDS[number]) if number < len(KINDS) else number


def closed(number: int) -> object:
    return Closed(KINDS[number]) if number < len(KINDS) else number


def throws(number: int) -> object:
    return throw(KINDS[number]) if number < len(KINDS) else number


async def throws_soon(number: int) -> object:
    return throws(number)


def same(value: object) -> object:
    return value


async def same_soon(value: object) -> object:
    return value


NAMES = ["StopIteration", "StopAsyncIteration", "GeneratorExit", "SystemExit", f"{__name__}.Panic"]
ONCE = dq.Retry(0)


def test_results_whose_unpickling_raises_anything_cost_no_other(queue: dq.QueuePool) -> None:
    """StopIteration was taken for the end of the page, which was then read again for ever."""
    run = queue.map(opened, range(8)).wait(timeout=30)

    values = list(run.results(timeout=30, errors="return"))

    assert values[5:] == [5, 6, 7]
    assert all(isinstance(value, ResultUnreadable) for value in values[:5])
    assert [value.error for value in values[:5]] == NAMES
    assert "StopIteration: it does not say why. Its" in str(values[0])
    assert run.results(errors="return").to_frame().shape == (8, 1)
    seen: list[object] = []
    with pytest.raises(ResultUnreadable):
        seen.extend(value for _, value in run.as_completed(timeout=30))
    assert sorted(seen) == [5, 6, 7]  # type: ignore[type-var]
    put = queue.batch_submit([(opened, number) for number in range(6)])
    assert [value.error for value in put.results(timeout=30, errors="return")[:5]] == NAMES


def test_ctrl_c_while_a_result_is_unpickled_is_no_error_of_it(queue: dq.QueuePool) -> None:
    """An interrupt of the reading ends all of it."""
    results = queue.map(lambda x: Opened(KeyboardInterrupt), range(2)).results(timeout=30)

    with pytest.raises(KeyboardInterrupt):
        list(results)


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize("function", [throws, throws_soon, closed], ids=["function", "coroutine", "result"])
def test_functions_that_raise_anything_fail_their_message_alone(
    queue: dq.QueuePool, function: Any, executor: Any
) -> None:
    """What ends a loop in dqlab's own code would end that of a consumer."""
    if function is throws_soon and executor == "process":
        pytest.skip("coroutines never run there")

    run = queue.map(function, range(8), retry=ONCE, executor=executor).wait(timeout=60)

    assert dict(run.results(errors="skip").items()) == {5: 5, 6: 6, 7: 7}
    errors = [letter.error for letter in sorted(run.failures(), key=lambda letter: letter.ordinal)]
    if function is closed:
        assert errors == ["ResultRefused"] * 5
    else:
        inside = {"StopIteration": "RuntimeError"} if function is throws_soon else {}  # so Python has it
        assert errors == [inside.get(name, name) for name in NAMES]


async def ends_its_loop(number: int) -> int:
    loop = asyncio.get_running_loop()
    if number == 1:
        await loop.create_task(throws_soon(KINDS.index(SystemExit)))
    if number == 2:
        loop.stop()
    if number == 3:
        for task in asyncio.all_tasks():
            task.cancel()
    await asyncio.sleep(0)
    return number


def test_coroutines_that_end_their_event_loop_leave_it_to_the_others(lab: dq.Lab, queue_name: str) -> None:
    """Their consumer failed whatever came after them, for the loop was closed."""
    pool = lab.queue(queue_name, concurrency=1)
    run = pool.map(ends_its_loop, range(50), retry=ONCE).wait(timeout=30)

    failed = {letter.ordinal: letter.error for letter in run.failures()}
    assert failed == {1: "SystemExit", 3: "asyncio.exceptions.CancelledError"}
    assert len(pool.map(same_soon, range(50), retry=ONCE).results(timeout=30)) == 50
    pool.close()


class Input:
    """An input that raises: when its iteration begins, or at its third element."""

    def __init__(self, kind: type[BaseException], *, begins: bool) -> None:
        self.kind, self.begins = kind, begins

    def __iter__(self) -> Iterator[int]:
        if not self.begins:
            raise self.kind
        return self._elements()

    def _elements(self) -> Iterator[int]:
        yield from range(2)
        throw(self.kind)


@pytest.mark.parametrize("begins", [True, False], ids=["later", "at once"])
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_inputs_that_raise_anything_have_broken_and_not_ended(
    queue: dq.QueuePool, kind: type[BaseException], begins: bool
) -> None:
    """A run of what came before the error would look complete."""
    run = queue.map(same, Input(kind, begins=begins))

    with pytest.raises(SubmissionIncomplete, match="position 2" if begins else "position 0: .* Nothing was submitted"):
        run.results(timeout=30)
    assert list(run.results(errors="skip", timeout=30)) == ([0, 1] if begins else [])
    if not begins:
        return
    again = queue.map(same, Input(kind, begins=False), name=run.name)
    with pytest.raises(SubmissionIncomplete):
        again.results(timeout=30)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_elements_whose_pickling_raises_anything_are_named(queue: dq.QueuePool, kind: type[BaseException]) -> None:
    """In a notebook SystemExit would ask whether to end the kernel."""
    with pytest.raises(SubmissionIncomplete, match=r"NotPicklable: element 1 cannot be pickled: it is a .*Closed"):
        queue.map(same, [0, Closed(kind), 2]).results(timeout=30)
    with pytest.raises(NotPicklable, match="Closed"):
        queue.submit(same, [0, Closed(kind)])


# --- exceptions whose own code breaks what records them -----------------------------------------


class Untouchable(Exception):
    """No attribute of it can be read."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Masked(Exception):
    """Asking for its class raises."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class Endless(Exception):
    """Its cause cannot be read."""

    @property
    def __cause__(self) -> Any:
        raise RuntimeError("no cause")


def nested(depth: int) -> Exception:
    error: Exception = ValueError("innermost")
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


BREAKING: dict[str, Any] = {
    "a group of groups": lambda: nested(2000),
    "no attributes": Untouchable,
    "no class": Masked,
    "no cause": Endless,
}


def breaks(number: int, kind: str) -> int:
    if number == 3:
        raise BREAKING[kind]()
    return 2 * number


async def breaks_soon(number: int, kind: str) -> int:
    return breaks(number, kind)


@pytest.mark.parametrize("kind", BREAKING)
@pytest.mark.parametrize("how", mostly_slow(["thread", "coroutine", "process"], "thread"))
def test_an_exception_that_cannot_be_described_fails_its_message_at_once_and_no_other(
    queue: dq.QueuePool, how: str, kind: str
) -> None:
    """Its lease was kept without an outcome, and the message died of five expired leases, six minutes later."""
    fn = partial(breaks_soon if how == "coroutine" else breaks, kind=kind)
    run = queue.map(fn, range(10), retry=ONCE, executor="process" if how == "process" else "thread")

    assert run.wait(timeout=30).results(errors="skip", timeout=30)[:] == [2 * x for x in range(10) if x != 3]
    (letter,) = run.failures()
    assert letter.key == 3
    assert letter.error.rpartition(".")[2] in ("ExceptionGroup", "Untouchable", "Masked", "Endless")
    assert queue.map(same, range(20)).results(timeout=30)[:] == list(range(20))


# --- exceptions that come late --------------------------------------------------------------------


def throws_late(number: int, mark: Path) -> int:
    """Return, and have an exception raised in this thread a moment later, as `stopit` does when it is too slow."""
    me, error = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(TimeoutError)

    def throw_there() -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(me, error)
        mark.touch()

    if number == 3:
        threading.Timer(0.05, throw_there).start()
    return 2 * number


def slowly(number: int) -> int:
    time.sleep(0.002)
    return number + 1


def test_an_exception_that_reaches_a_consumers_idle_thread_costs_no_document(
    queue: dq.QueuePool, tmp_path: Path
) -> None:
    """It ended the thread, and the next document was leased, and its lease renewed, for ever."""
    for turn in range(3):
        mark = tmp_path / str(turn)
        first = queue.map(partial(throws_late, mark=mark), range(5))
        assert first.results(timeout=30)[:] == [2 * x for x in range(5)]
        until(mark.exists)

        assert queue.map(slowly, range(100)).results(timeout=30)[:] == [x + 1 for x in range(100)]
