"""Values count by what they hold: changed in place or assigned again, a function that reads them is another one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from dqlab.runs.code.versions import CodeVersion, code_version
from tests.runs.code.test_code import cell

PREPARE = """
import array, collections, datetime, decimal, enum, functools, math, operator, pathlib, re, types, uuid, zoneinfo
from dataclasses import dataclass, field
import numpy as np
import pandas as pd

PAIR = [('a', 'i4'), ('b', 'f8')]

class Measured(pd.DataFrame):
    _metadata = ["unit"]

def measured(unit):
    made = Measured({"a": [1]})
    made.unit = unit
    return made

class Slots:
    __slots__ = ("a", "b")
    def __init__(self, a, b): self.a, self.b = a, b

class Both(Slots):
    pass

class Plain:
    def __init__(self, **state): self.__dict__.update(state)
    def method(self, x): return x

@dataclass
class Point:
    x: int
    more: list = field(default_factory=list)

@dataclass(frozen=True, slots=True)
class Fixed:
    x: int

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Flags(enum.Flag):
    A = 1
    B = 2

class Words(set):
    pass

class Stored:
    def __init__(self, kept): self.kept, self.cache = kept, object
    def __getstate__(self): return {"kept": self.kept}

def made(n):
    def inner(x): return x + n
    return inner

def cycled(n):
    top = Plain(n=n, children=[])
    for at in range(3):
        top.children.append(Plain(parent=top, at=at, words={"a", "b", "c", str(n)}))
    return top

def shared(n):
    inner = [n]
    for _ in range(40):
        inner = [inner, inner]
    return inner

def frame(*values, **more): return pd.DataFrame({"a": [1, 2, 3], "b": list(values)}, **more)
"""

PAIRS = [
    ("np.arange(5)", "np.array([0, 1, 2, 3, 5])"),
    ("np.arange(6)", "np.arange(6).reshape(2, 3)"),
    ("np.arange(3)", "np.arange(3, dtype=float)"),
    ("np.zeros(3)", "-np.zeros(3)"),
    ("np.array([1, math.nan])", "np.array([1, math.inf])"),
    ("np.array(['a', 'b'])", "np.array(['a', 'c'])"),
    ("np.array(['a', None, [1]], dtype=object)", "np.array(['a', None, [2]], dtype=object)"),
    ("np.array(['a', 'b'], dtype=object)", "np.array(['ab', ''], dtype=object)"),
    ("np.array([(1, 2.0)], dtype=PAIR)", "np.array([(1, 3.0)], dtype=PAIR)"),
    ("np.ma.array([1, 2], mask=[0, 1])", "np.ma.array([1, 2], mask=[1, 0])"),
    ("np.arange(9).reshape(3, 3).T", "np.arange(9).reshape(3, 3)"),
    ("np.float32(1.5)", "np.float64(1.5)"),
    ("np.int64(1)", "np.int64(2)"),
    ("np.datetime64('2026-01-01')", "np.datetime64('2026-01-02')"),
    ("np.random.default_rng(1)", "np.random.default_rng(2)"),
    ("np.dtype('i4')", "np.dtype('i8')"),
    ("frame(1, 2, 3)", "frame(1, 2, 4)"),
    ("frame(1, 2, 3)", "frame(1.0, 2.0, 3.0)"),
    ("frame(1, 2, 3)", "frame(1, 2, 3, index=[3, 2, 1])"),
    ("frame('x', 'y', 'z')", "frame('x', 'y', None)"),
    ("frame('x', 'y', 'nan')", "frame('x', 'y', float('nan'))"),
    ("frame('x', 'y', 'z').astype('category')", "frame('x', 'y', 'y').astype('category')"),
    ("frame(1, 2, 3).rename(columns={'a': 'c'})", "frame(1, 2, 3)"),
    ("frame(1, 2, 3).set_index(['a', 'b'])", "frame(1, 2, 4).set_index(['a', 'b'])"),
    ("pd.Series([1, 2], name='a')", "pd.Series([1, 2], name='b')"),
    ("pd.Series([1, None], dtype='Int64')", "pd.Series([1, 0], dtype='Int64')"),
    ("pd.Series(pd.date_range('2026', periods=3, tz='UTC'))", "pd.Series(pd.date_range('2026', periods=3, tz='CET'))"),
    ("pd.Series([{'a': 1}])", "pd.Series([{'a': 2}])"),
    ("pd.Series([pd.Interval(0, 1)])", "pd.Series([pd.Interval(0, 2)])"),
    ("pd.RangeIndex(3)", "pd.RangeIndex(4)"),
    ("pd.Timestamp('2026-01-01')", "pd.Timestamp('2026-01-02')"),
    ("array.array('b', [1])", "array.array('b', [2])"),
    ("bytearray(2 << 20)", "bytearray((2 << 20) + 1)"),
    ("Slots(1, {'a', 'b', 'c'})", "Slots(1, {'a', 'b', 'd'})"),
    ("Both(1, 2)", "Both(1, 3)"),
    ("Plain(a=1, b=frame(1, 2, 3))", "Plain(a=1, b=frame(1, 2, 4))"),
    ("Point(1)", "Point(1, [2])"),
    ("Fixed(1)", "Fixed(2)"),
    ("Color.RED", "Color.BLUE"),
    ("Flags.A | Flags.B", "Flags.A"),
    ("Words('abc')", "Words('abd')"),
    ("{'a', 'b', ('c', 1), frozenset('xyz')}", "{'a', 'b', ('c', 2), frozenset('xyz')}"),
    ("{str(n) for n in range(200)}", "{str(n) for n in range(201)}"),
    ("{str(n): n for n in range(200)}", "{str(n): n for n in range(1, 201)}"),
    ("{n: {n} for n in range(200)}", "{n: {n} for n in range(201)}"),
    ("[str(n) for n in range(200)]", "[str(n) for n in range(199)] + ['x']"),
    ("[*range(100), True]", "[*range(100), 1]"),
    ("Stored([1])", "Stored([2])"),
    ("cycled(1)", "cycled(2)"),
    ("shared(1)", "shared(2)"),
    ("functools.partial(made, n=1)", "functools.partial(made, n=2)"),
    ("functools.lru_cache(made(1))", "functools.lru_cache(made(2))"),
    ("made(1)", "made(2)"),
    ("Plain(a=1).method", "Plain(a=2).method"),
    ("lambda x: x + 1", "lambda x: x + 2"),
    ("math.nan", "math.inf"),
    ("0.0", "-0.0"),
    ("datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)", "datetime.datetime(2026, 1, 1)"),
    ("datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo('UTC'))", "datetime.datetime(2026, 1, 1)"),
    ("datetime.time(1)", "datetime.time(2)"),
    ("pathlib.Path('a')", "pathlib.Path('b')"),
    ("re.compile('a')", "re.compile('a', re.I)"),
    ("math", "operator"),
    ("math.sin", "math.cos"),
    ("collections.OrderedDict(a=1, b=2)", "collections.OrderedDict(b=2, a=1)"),
    ("collections.defaultdict(list, a=1)", "collections.defaultdict(set, a=1)"),
    ("collections.Counter('aab')", "collections.Counter('aabb')"),
    ("collections.deque([1, 2])", "collections.deque([2, 1])"),
    ("types.MappingProxyType({'a': 1})", "types.MappingProxyType({'a': 2})"),
    ("types.SimpleNamespace(a=1)", "types.SimpleNamespace(a=2)"),
    ("list[int]", "list[str]"),
    ("slice(1, 2)", "slice(1, 3)"),
    ("ValueError('a')", "ValueError('b')"),
    ("np.ma.array([1, 2], mask=[0, 1])", "np.ma.array([1, 2], mask=[0, 1], fill_value=-5)"),
    ("pd.date_range('2026', periods=3)", "pd.DatetimeIndex(list(pd.date_range('2026', periods=3)))"),
    ("frame(1, 2, 3)", "frame(1, 2, 3).set_flags(allows_duplicate_labels=False)"),
    ("measured('m')", "measured('km')"),
]


def version(value: str) -> CodeVersion:
    return code_version(cell(f"{PREPARE}\nV = {value}\ndef f(x):\n    return V\n")["f"])


@pytest.mark.parametrize(
    ("make", "change"),
    [
        ("np.zeros(1000)", "V[500] = 1"),
        ("frame(1, 2, 3)", "V.loc[1, 'b'] = 9"),
        ("frame(1, 2, 3)", "V['c'] = 0"),
        ("Plain(a=1)", "V.a = 2"),
        ("Slots(1, 2)", "V.b = 3"),
        ("[1, [2]]", "V[1].append(3)"),
        ("made(1)", "V.limit = 3"),
    ],
)
def test_value_that_was_changed_in_place_is_another_value(make: str, change: str) -> None:
    """Remembering digests by identity would miss the commonest change of all."""
    names = cell(f"{PREPARE}\nV = {make}\ndef f(x):\n    return V\n")
    before = code_version(names["f"])

    exec(change, names)

    assert code_version(names["f"]).hash != before.hash
    assert code_version(names["f"]).changed_since(before.parts)


def test_what_has_changed_is_named() -> None:
    """ "Other code" sends people to a function that they never touched."""
    text = "\nlimit = {}\ntable = frame(1, 2, {})\ndef g(x):\n    return table\ndef f(x):\n    return g(x) {} limit\n"

    def made(*values: object) -> CodeVersion:
        return code_version(cell(PREPARE + text.format(*values))["f"])

    first = made(1, 3, "or")

    assert made(1, 4, "or").changed_since(first.parts) == ["table of g"]
    assert made(2, 3, "and").changed_since(first.parts) == ["code of f", "limit of f"]


def test_value_that_returns_anything_as_its_name_has_a_version() -> None:
    """`from polars import col`: every attribute of it is a column, whose truth cannot be asked for."""
    text = """
class Column:
    def __init__(self, name): self.name = name
    def __bool__(self): raise TypeError("the truth value is ambiguous")
class Columns:
    def __getattr__(self, name):
        if name.startswith("__") and name not in ("__name__", "__qualname__", "__wrapped__", "__code__"):
            raise AttributeError(name)
        return Column(name)
    def __call__(self, name): return Column(name)
col = Columns()
def f(x): return col("a")
"""
    assert code_version(cell(text)["f"]).uncertain == ()


@pytest.mark.long
def test_value_of_very_many_parts_is_told_as_uncertain() -> None:
    """Better a sentence than a cell that describes a graph of millions of nodes for minutes."""
    found = version("[[n, [n]] for n in range(60_000)]")

    assert found.uncertain == ("V of f (list)",)


def test_objects_that_raise_when_they_are_read_are_uncertain() -> None:
    """A proxy, a closed handle: whatever its own code raises, the version is made and the value is named."""
    source = "class Odd:\n    def __reduce_ex__(self, _): raise RuntimeError\nV = Odd()\ndef f(x):\n    return V\n"

    assert code_version(cell(source)["f"]).uncertain == ("V of f (Odd)",)


def test_open_things_are_uncertain_and_are_not_touched() -> None:
    """Describing a generator must not use it up."""
    names = cell("V = (x for x in range(3))\ndef f(x):\n    return V\n")

    assert code_version(names["f"]).uncertain == ("V of f (generator)",)
    assert list(names["V"]) == [0, 1, 2]


SCRIPT = """
from tests.runs.code.test_contents import PAIRS, version
for one, other in PAIRS:
    print(version(one).hash, version(other).hash)
"""


@pytest.mark.cluster
def test_two_kernels_give_values_the_same_versions() -> None:
    """After a kernel restart sets have another order and objects other addresses; the run must be found."""

    def hashes(seed: str) -> list[str]:
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.splitlines()

    first = hashes("1")
    assert len(first) == len(PAIRS)
    assert first == hashes("4021")


def test_frames_of_other_libraries_count_by_content() -> None:
    """Whatever holds the table, a changed table is another table."""
    libraries: list[tuple[str, Any]] = [("polars", "polars.DataFrame"), ("pyarrow", "pyarrow.table")]
    for library, make in libraries:
        try:
            __import__(library)
        except ImportError:
            continue
        text = f"import {library}\nV = {make}(dict(a=[1, 2, 3], b=['x', None, %r]))\ndef f(x):\n    return V\n"
        one, again, other = (code_version(cell(text % part)["f"]) for part in "zzy")
        assert one.hash == again.hash != other.hash
        assert one.uncertain == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pa.array(['a', None])", "pa.array(['b', None])"),
        ("pa.array([True, False])", "pa.array([True, True])"),
        ("pa.array([1, 2, 3])[:1]", "pa.array([1, 2, 3])[1:2]"),
        ("pa.array(['a']).dictionary_encode()", "pa.array(['b']).dictionary_encode()"),
        ("pa.array([decimal.Decimal('1.10')])", "pa.array([decimal.Decimal('1.20')])"),
        ("pa.array([1], pa.time64('us'))", "pa.array([2], pa.time64('us'))"),
        ("pa.record_batch({'a': ['x']})", "pa.record_batch({'a': ['y']})"),
        ("noted(500 * 'x' + '1')", "noted(500 * 'x' + '2')"),
    ],
)
def test_arrow_arrays_count_by_content(one: str, other: str) -> None:
    """Of texts and truth values Arrow makes no NumPy array without a copy; they are compared all the same."""
    pytest.importorskip("pyarrow")
    noted = "def noted(text):\n    return pa.table(dict(a=[1])).replace_schema_metadata(dict(k=text))\n"
    text = f"import decimal, pyarrow as pa\n{noted}V = {{}}\ndef f(x):\n    return V\n"
    first, again, changed = (code_version(cell(text.format(value))["f"]) for value in (one, one, other))

    assert first.hash == again.hash != changed.hash
    assert first.uncertain == ()
