"""`dq.explain`: what a function takes along, and what its version rests on."""

from __future__ import annotations

import threading

import pytest

import dqlab as dq
from dqlab.errors import BadOption
from tests.runs.code.test_code import cell

SOURCE = """
import math
import numpy as np
model = np.zeros({})
limit = 3
class Parser:
    def parse(self, x): return x
parser = Parser()
gap = (n for n in 'ab')
def helper(x):
    return math.sin(x) + limit
def f(x):
    return helper(x), model, parser.parse(x)
"""


@pytest.mark.long
def test_values_are_listed_by_size_and_how_they_are_compared() -> None:
    """A model of 240 MB that is pickled with the function goes unnoticed until the cluster is slow."""
    found = dq.explain(cell(SOURCE.format(3_000_000))["f"])

    assert [value.name for value in found.values][:1] == ["model of f"]
    by_name = {value.name: value for value in found.values}
    assert by_name["math of helper"].compared == "release"
    assert by_name["limit of helper"].compared == "content"
    assert found.size is not None
    assert found.size > 24_000_000
    assert "! model of f is 24 MB and is pickled along with the function" in repr(found)
    assert "code of helper" in repr(found)


def test_what_cannot_be_sent_or_compared_is_said() -> None:
    """Asking is how one finds out, before anything is submitted."""
    names = cell("def f(x):\n    return lock, x\n")
    names["lock"] = threading.Lock()

    found = dq.explain(names["f"])

    assert found.size is None
    assert found.values[0].compared == "type only"
    assert "cannot be sent" in repr(found)
    with pytest.raises(BadOption, match="not a function"):
        dq.explain(3)  # type: ignore[arg-type]
