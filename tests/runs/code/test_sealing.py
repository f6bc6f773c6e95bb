"""A function that changes what is outside it changes a copy: it is said when it is mapped, and nothing else is."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import BadOption
from dqlab.runs.code.sealing import ChangesACopy
from dqlab.runs.code.source import changes
from dqlab.runs.code.versions import version_and_values
from tests.runs.code.test_code import cell

BEFORE = """
from collections import Counter, OrderedDict, defaultdict, deque
import functools, sys, os
import numpy as np
import pandas as pd
seen, names, counts, groups, words = [], set(), {}, defaultdict(list), Counter()
total, best, model, MODELS, cache, table, frame, last = 0, 0, None, [], {}, np.zeros(9), pd.DataFrame(), deque()
def load(): return len
class Parser:
    instances = 0
    def __init__(self): self.count, self.pages, self.model, self.known = 0, [], None, {}
    def parse(self, x):
        self.count += 1
        self.pages.append(x)
        return x
    def read(self, x):
        if self.model is None:
            self.model = load()
        if x not in self.known:
            self.known[x] = self.model(x)
        return self.known[x]
    def __call__(self, x):
        self.count = self.count + 1
        return x
parser = Parser()
"""


def found(body: str, *, name: str = "f") -> list[str]:
    names = cell(BEFORE + body)
    fn = names[name] if name.isidentifier() else eval(name, names)
    _, values = version_and_values(fn)
    return [str(each) for each in changes(fn, (value for _, value in values))]


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("def f(x):\n    seen.append(x)\n    return x", ["seen (list)"]),
        ("def f(x):\n    names.add(x)\n    names.update([x])", ["names (set)"]),
        ("def f(x):\n    seen.extend([x])\n    last.append(x)", ["seen (list)", "last (collections.deque)"]),
        ("def f(x):\n    counts[x] = 1", ["counts (dict)"]),
        ("def f(x):\n    counts[x] = counts.get(x, 0) + 1\n    return counts[x]", ["counts (dict)"]),
        ("def f(x):\n    for w in x:\n        words[w] += 1", ["words (collections.Counter)"]),
        ("def f(x):\n    groups[x].append(x)", ["groups (collections.defaultdict)"]),
        ("def f(x):\n    global total\n    total += 1", ["total"]),
        ("def f(x):\n    global best\n    best = max(best, x)", ["best"]),
        ("def f(x):\n    table[x] = 1", ["table (numpy.ndarray)"]),
        ("def f(x):\n    frame.loc[x, 'a'] = 1", ["frame (pandas.DataFrame)"]),
        ("def f(x):\n    if x in names:\n        return None\n    names.add(x)\n    return x", ["names (set)"]),
        ("def note(x):\n    seen.append(x)\ndef f(x):\n    note(x)", ["seen (list)"]),
        ("def f(x):\n    def inner():\n        seen.append(x)\n    inner()", ["seen (list)"]),
        ("def make():\n    n = 0\n    def f(x):\n        nonlocal n\n        n += 1\n    return f\nf = make()", ["n"]),
        ("def make():\n    got = []\n    return lambda x: got.append(x)\nf = make()", ["got (list)"]),
        ("@functools.lru_cache\ndef f(x):\n    seen.append(x)", ["seen (list)"]),
        ("def f(x):\n    parser.count += 1", ["parser.count"]),
    ],
)
def test_what_a_function_changes_outside_itself_is_found(body: str, changed: list[str]) -> None:
    """The consumer's copy changes; the notebook's stays empty, without a word."""
    assert found(body) == changed


@pytest.mark.parametrize(
    "body",
    [
        "def f(x):\n    global model\n    if model is None:\n        model = load()\n    return model(x)",
        "def f(x):\n    if not MODELS:\n        MODELS.append(load())\n    return MODELS[0](x)",
        "def f(x):\n    if len(MODELS) == 0:\n        MODELS.append(load())\n    return MODELS[0](x)",
        "@functools.cache\ndef get():\n    return load()\ndef f(x):\n    return get()(x)",
        "def f(x):\n    if x not in cache:\n        cache[x] = load()(x)\n    return cache[x]",
        "def f(x):\n    got = cache.get(x)\n    if got is None:\n        got = cache[x] = load()(x)\n    return got",
        "def f(x):\n    seen = []\n    seen.append(x)\n    return seen",
        "def f(x):\n    counts = {}\n    for w in x:\n        counts[w] = counts.get(w, 0) + 1\n    return counts",
        "def f(x):\n    return [seen.append(1) for seen in x]",
        "def f(x):\n    sys.path.append('here')\n    os.environ['A'] = 'b'",
        "def f(x):\n    def inner():\n        nonlocal n\n        n += 1\n    n = 0\n    inner()\n    return n",
        "def f(x):\n    seen.clear()\n    seen.append(x)\n    return list(seen)",
        "def f(x):\n    x.append(1)\n    x.count += 1\n    x['a'] = 2\n    return x",
        "def f(x):\n    return Parser().parse(x)",
        "def f(x):\n    mine = Parser()\n    mine.count += 1\n    return mine.parse(x)",
        "def f(x):\n    return parser.read(x)",
        "f = Parser",
        "f = functools.partial(np.add, 1)",
    ],
)
def test_what_is_local_or_kept_for_later_calls_is_no_loss(body: str) -> None:
    """A warning that is wrong once is read no more. A model that is loaded once is a recommended pattern."""
    assert found(body) == []


def test_warning_comes_once_for_each_function_and_says_what_to_do(queue: dq.QueuePool) -> None:
    fn: Any = cell("seen = []\ndef remember(x):\n    seen.append(x)\n    return x\n")["remember"]

    with pytest.warns(ChangesACopy) as caught:
        run = queue.map(fn, [1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        queue.map(fn, [1, 2])

    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert str(caught[0].message) == (
        "remember changes seen (list): each consumer's process changes a copy of its own, and what is here stays as it "
        "is. Return the value from the function, and read run.results()."
    )
    assert list(run.results(timeout=60)) == [1, 2]
    assert fn.__globals__["seen"] == []


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
