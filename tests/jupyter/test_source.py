"""The function of a cell: its lines are those that the user sees, here and on consumers."""

from __future__ import annotations

import asyncio
import linecache
import pickle
from typing import Any

import cloudpickle
import pytest

CELL = """\
%%dq submit --over [0] --retries 0 --wait -o run

half = 2

def halves(x):
    return half / x
"""


def test_traceback_of_a_consumer_has_the_line_number_and_the_source_of_the_cell(connected: Any) -> None:
    """The magic's line is the first that the user counts; the consumer is another process and has no cells."""
    connected.run(CELL)

    [letter] = connected["run"].failures()

    assert letter.at == "halves:6"
    assert ", line 6, in halves\n    return half / x\n" in letter.traceback


def test_cell_may_await_as_any_other_cell_of_a_kernel(connected: Any) -> None:
    """A kernel runs cells on a loop, on which the cell inside this one could not wait for anything."""
    cell = (
        "%%dq submit --over [3] --wait -o run\nimport asyncio\n"
        "more = await asyncio.sleep(0, 5)\ndef adds(x): return x + more"
    )

    async def as_a_kernel_does() -> None:
        transformed = connected.shell.transform_cell(cell)
        (await connected.shell.run_cell_async(cell, transformed_cell=transformed)).raise_error()

    asyncio.run(as_a_kernel_does())

    assert list(connected["run"].results()) == [8]


@pytest.mark.parametrize("first", ["", "\n", "\n  \n"])
def test_indented_cell_is_defined_as_in_any_other_cell(connected: Any, first: str) -> None:
    """IPython takes away what all lines are indented by; pasted code relies on it."""
    connected.run(f"%%dq submit --over [3] --wait -o run\n{first}    def same(x):\n        return x")

    assert list(connected["run"].results()) == [3]


def test_function_wrapped_by_a_decorator_carries_its_lines_too(connected: Any) -> None:
    """What is mapped is the wrapper; what fails stands in the cell."""
    connected.run(
        "%%dq submit --over [0] --retries 0 --wait -o run\n"
        "from functools import partial\n"
        "def divide(one, x): return one / x\n"
        "def by(x): return divide(1, x)\n"
        "by = partial(by)"
    )

    [letter] = connected["run"].failures()

    assert "in divide\n    def divide(one, x): return one / x\n" in letter.traceback


def test_cell_travels_inside_the_pickle_of_its_function(connected: Any) -> None:
    """Wherever it is opened, tracebacks know its lines: nothing has to be sent beside it."""
    connected.run("%%dq submit --over [1] --wait\ndef same(x):\n    return x")
    filename = connected["same"].__code__.co_filename
    sealed, here = cloudpickle.dumps(connected["same"]), linecache.cache.pop(filename)

    same = pickle.loads(sealed)

    assert linecache.getline(filename, 3) == "    return x\n"
    assert linecache.cache[filename] == here
    assert pickle.loads(cloudpickle.dumps(same))(4) == 4
