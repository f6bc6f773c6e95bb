"""Code versions change when the code does, and at no other time."""

from __future__ import annotations

import functools
import itertools
import json
import linecache
import math
import operator
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dqlab.runs.code.versions import CodeVersion, code_version
from dqlab.syntax import parse

pytestmark = pytest.mark.lowest

CELLS = itertools.count()


def cell(source: str, *, name: str | None = None) -> dict[str, Any]:
    """Return what a notebook cell defines; its source is found the way IPython leaves it."""
    name = name or f"<ipython-input-{next(CELLS)}-0badcafe>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), namespace)
    return namespace


def version(source: str, name: str = "f") -> CodeVersion:
    return code_version(cell(source)[name])


def differ(*sources: str) -> bool:
    """Return True when no two cells define the same f."""
    return len({version(source).hash for source in sources}) == len(sources)


def agree(*sources: str) -> bool:
    return len({version(source).hash for source in sources}) == 1


# --- what a version is ----------------------------------------------------------------------


def test_version_has_name_source_and_cell() -> None:
    """The run's page shows the code that ran, not the code that is in the cell now."""
    source = "import os\n\n@staticmethod\ndef other(): ...\n\ndef f(x):\n    # why\n    return x\n"
    namespace = cell(source, name="<ipython-input-17-abc>")

    found = code_version(namespace["f"])

    assert (found.name, found.cell) == ("f", 17)
    assert found.source == "def f(x):\n    # why\n    return x"
    scheme, _, digits = found.hash.partition("-")
    assert (scheme.isdigit(), len(digits)) == (True, 32)
    assert digits.startswith(found.short)
    assert len(found.short) == 6
    assert found.uncertain == ()
    assert found.explain() == f"f from cell 17, version {found.short}: its code and every value it reads count."


@pytest.mark.parametrize(
    "other",
    [
        "# a comment\n\n\ndef f(x):\n    # another\n    return x + 1\n",
        "def f(x): return (x + 1)\n",
        "def g(): ...\ndef f(x):\n\n    return x+1   # here\n",
        "if True:\n    def f(x):\n        return x + 1\n",
        "unused = 7\ndef f(x):\n    return x + 1\n",
    ],
)
def test_comments_lines_and_layout_do_not_count(other: str) -> None:
    """Tidying a cell must not make finished work look stale."""
    assert agree("def f(x):\n    return x + 1\n", other)


@pytest.mark.parametrize(
    "other",
    [
        "def f(x):\n    return x + 2\n",
        "def f(x):\n    return x - 1\n",
        "def f(y):\n    return y + 1\n",
        "def f(x, *, y=0):\n    return x + 1\n",
        "def f(x=0):\n    return x + 1\n",
        "def f(x):\n    'New words.'\n    return x + 1\n",
        "def f(x):\n    return x + True\n",
        "def f(x):\n    return x + 1.0\n",
        "async def f(x):\n    return x + 1\n",
        "def g(x): return x\ng.__name__ = 'f'\nf = g\n",
        "f = lambda x: x + 1\n",
        "import functools\n@functools.cache\ndef f(x):\n    return x + 1\n",
    ],
)
def test_any_change_of_the_function_counts(other: str) -> None:
    """Otherwise a fixed function would be taken for the broken one."""
    assert differ("def f(x):\n    return x + 1\n", other)


# --- what a function names ------------------------------------------------------------------


def test_functions_that_call_each_other_have_versions() -> None:
    """Recursive descent is how documents are parsed."""
    text = (
        "def even(n):\n    return n == 0 or odd(n - 1)\n"
        "def odd(n):\n    return n != 0 and even(n - {})\n"
        "def f(n):\n    return f(n - 1) if n else even(n)\n"
    )

    assert agree(text.format(1), text.format(1))
    assert differ(text.format(1), text.format(2))
    assert version(text.format(1), "even").hash != version(text.format(1), "odd").hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("class C:\n    def run(self): return 1\n", "class C:\n    def run(self): return 2\n"),
        ("class C:\n    limit = 1\n", "class C:\n    limit = 2\n"),
        (
            "class C:\n    @property\n    def a(self): return 1\n",
            "class C:\n    @property\n    def a(self): return 2\n",
        ),
        ("class C:\n    @staticmethod\n    def a(): return 1\n", "class C:\n    @classmethod\n    def a(): return 1\n"),
        ("class B: x = 1\nclass C(B): ...\n", "class B: x = 2\nclass C(B): ...\n"),
        ("class C(Exception): ...\n", "class C(ValueError): ...\n"),
        (
            "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = 1\n",
            "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = 2\n",
        ),
        (
            "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = 1\n",
            "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass C:\n    a: int = 1\n",
        ),
        (
            "import enum\nclass C(enum.Enum):\n    A = 1\n    B = 2\n",
            "import enum\nclass C(enum.Enum):\n    A = 1\n    B = 3\n",
        ),
        (
            "import typing\nclass C(typing.NamedTuple):\n    a: int = 1\n",
            "import typing\nclass C(typing.NamedTuple):\n    a: int = 2\n",
        ),
        (
            "import functools\nclass C:\n    @functools.cached_property\n    def a(self): return 1\n",
            "import functools\nclass C:\n    @functools.cached_property\n    def a(self): return 2\n",
        ),
        ("class C:\n    __slots__ = ('a',)\n", "class C:\n    __slots__ = ('b',)\n"),
        ("class C:\n    a: int\n", "class C:\n    a: str\n"),
        *(
            (text, text.replace("return 1", "return 2"))
            for text in (
                "class I:\n    def v(self): return 1\nclass C:\n    a: 'list[I]'\n",
                "class I:\n    def v(self): return 1\nclass C:\n    a: list[I]\n",
                "class I:\n    def v(self): return 1\ndef C(x: 'I'): pass\n",
                "class I:\n    def v(self): return 1\ndef C() -> I | None: pass\n",
                "class P(property):\n    def __get__(self, one, kind=None): return 1\nclass C:\n    p = P()\n",
            )
        ),
    ],
)
def test_change_of_a_class_it_uses_counts(one: str, other: str) -> None:
    """Classes of the notebook travel with the function; a version without them would lie."""
    use = "def f(x):\n    return C\n"

    assert differ(one + use, other + use)
    assert agree(one + use, "# a comment\n\n" + one + use)
    assert version(one + use).uncertain == ()


# --- values ---------------------------------------------------------------------------------


def test_values_nested_without_end_count_by_type() -> None:
    """Better uncertain than a RecursionError at map()."""
    text = "V = []\nfor _ in range(100_000):\n    V = [V]\ndef f(x):\n    return V\n"

    assert version(text).uncertain == ("V of f (list)",)


def test_other_values_count_by_type_and_are_told() -> None:
    """A lock cannot be compared; the user must know that it was not."""
    text = "import threading\nV = {}\ndef g(x):\n    return V\ndef f(x):\n    return g(x)\n"

    assert agree(text.format("threading.Lock()"), text.format("threading.Lock()"))
    assert differ(text.format("threading.Lock()"), text.format("(x for x in 'ab')"))
    found = version(text.format("(x for x in 'ab')"))
    assert found.uncertain == ("V of g (generator)",)
    assert found.explain().endswith("; of these only the type: V of g (generator).")


# --- everything that can be called ----------------------------------------------------------


def plain(x: int) -> int:
    return x


class Scaled:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, x: int) -> int:
        return x + self.n

    def method(self, x: int) -> int:
        return x * self.n


@pytest.mark.parametrize(
    "function",
    [
        plain,
        len,
        math.sqrt,
        operator.itemgetter(1),
        "a b".split,
        str.upper,
        str,
        Path,
        int.__add__,
        partial(plain, 1),
        partial(partial(print, end=""), 1),
        Scaled(1),
        Scaled(1).method,
        Scaled,
        lambda x: x,
        functools.lru_cache(plain),
        functools.singledispatch(plain),
        json.loads,
        os.path.join,
    ],
    ids=lambda called: re.sub(r" at 0x\w+", "", repr(called)),
)
def test_everything_that_can_be_called_has_a_version(function: Callable[..., Any]) -> None:
    """What can be mapped can be attached to."""
    assert code_version(function).hash == code_version(function).hash
    assert code_version(function).name


def test_state_of_what_is_called_counts() -> None:
    """`Parser(strict=True)` and `Parser(strict=False)` are two functions."""
    versions = [
        code_version(function).hash
        for n in (1, 2)
        for function in (
            Scaled(n),
            Scaled(n).method,
            partial(plain, n),
            partial(plain, x=n),
            partial(Scaled(n), 0),
            "ab"[:n].join,
            operator.itemgetter(n),
        )
    ]

    assert len(set(versions)) == len(versions)


def test_imported_function_counts_by_module_name_and_release() -> None:
    """Its code is the package's; the package has a version."""
    assert code_version(json.loads).hash != code_version(json.load).hash
    assert code_version(pytest.raises).uncertain == ()


def test_module_without_a_distribution_counts_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`from parsers import parse` beside the notebook: an edit and a reload are a new version."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    hashes = []
    for text in ("def p(x):\n    return x\n", "# same\ndef p(x):\n    return x\n", "def p(x):\n    return x, 1\n"):
        (tmp_path / "dq_local_parsers.py").write_text(text)
        namespace = cell("import dq_local_parsers\nfrom dq_local_parsers import p\ndef f(x):\n    return p(x)\n")
        hashes.append((code_version(namespace["f"]).hash, code_version(namespace["p"]).hash))
        del sys.modules["dq_local_parsers"]

    assert hashes[0] == hashes[1]
    assert hashes[0][0] != hashes[2][0]
    assert hashes[0][1] != hashes[2][1]


def test_lambdas_of_one_line_are_told_apart() -> None:
    """They have one file, one line and one name, so their bytecode counts."""
    text = "fs = [lambda x: x + 1, lambda x: x + 2, lambda: lambda: 1]\n"
    fs = cell(text)["fs"]
    versions = [code_version(f) for f in (*fs, fs[2]())]

    assert len({found.hash for found in versions}) == 4
    assert code_version(cell("\n\n" + text)["fs"][1]).hash == versions[1].hash
    assert version("f = lambda x: x + 1\n").source == "lambda x: x + 1"


def test_function_without_source_counts_by_its_bytecode() -> None:
    """exec and generated code have none."""

    def made(text: str) -> Callable[..., Any]:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(text, namespace)
        return namespace["f"]  # type: ignore[no-any-return]

    text = "{}def f(x):\n    return [x + {} for x in {{'a', 'b'}}]\n"
    one, moved, other = (code_version(made(text.format(*gaps))) for gaps in (("", 1), ("\n\n", 1), ("", 2)))

    assert one.hash == moved.hash != other.hash
    assert (one.source, one.cell) == (None, None)


def test_expression_too_deep_for_its_tree_counts_by_its_bytecode() -> None:
    """Generated code has sums of a thousand terms."""
    text = "def f(x):\n    return " + " + ".join(["x"] * 700) + " + {}\n"

    assert agree(text.format(1), text.format(1))
    assert differ(text.format(1), text.format(2))


@pytest.mark.parametrize(("length", "times"), [(0, 1), (200_000, 3)], ids=["any", "very long"])
def test_cell_is_parsed_once_for_the_versions_of_all_its_functions(
    monkeypatch: pytest.MonkeyPatch, length: int, times: int
) -> None:
    """Each run parsed the whole script of its function again; the syntax of a very long one is not kept."""
    parsed: list[str] = []
    monkeypatch.setattr("dqlab.runs.code.source.parse", lambda text: (parsed.append(text), parse(text))[1])
    names = cell(f"def f(x): return x + 1\ndef g(x): return x - 1\nV = '{length * '-'}'\n")

    first, other, again = (code_version(names[name]).hash for name in "fgf")

    assert first == again != other
    assert len(parsed) == times


def test_script_that_was_edited_while_it_runs_keeps_its_version(tmp_path: Path) -> None:
    """A process maps the old code after the file was saved; when the new code is run, it must not attach to that."""

    def run() -> Callable[..., Any]:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(script.read_text(), str(script), "exec"), namespace)
        return namespace["f"]  # type: ignore[no-any-return]

    script = tmp_path / "script.py"
    script.write_text("def f(x):\n    return x + 1\n")
    loaded = run()
    before = code_version(loaded)
    script.write_text("def f(x):\n    return x + 200\n")
    edited = code_version(loaded)
    after = code_version(run())

    assert before.source == "def f(x):\n    return x + 1"
    assert edited.source is None
    assert len({before.hash, after.hash, edited.hash}) == 3
    assert after.source == "def f(x):\n    return x + 200"


# --- across processes -----------------------------------------------------------------------

SCRIPT = """
import enum, functools, re
from pathlib import Path
from dqlab.runs.code.versions import code_version

class Kind(enum.Enum):
    A = "a"
    B = "b"

class Node:
    kinds = {Kind.A, Kind.B}
    words = {"alpha", "beta", "gamma", "delta"}
    def walk(self): return visit(self)

def upper(x): return x.upper()
def lower(x): return x.lower()
def visit(node): return [Node, steps, table, lower]

steps = {upper, lower, functools.partial(upper, "a"), Node, len}
table = {"b": frozenset("xyz"), "a": (1, 2.5, None), Kind.A: Path("p"), re.compile("w"): {1: {2}}}

@functools.lru_cache
def cached(x): return steps

def f(x, *, limit={"q", "r", "s"}):
    return visit(x), cached(x), {"in", "line", "set"}, (lambda y: table)(x)

if __name__ == "__main__":
    made = {"__name__": "__main__"}
    exec("def g(x): return x in {'one', 'two', 'three'}", made)
    found = code_version(f)
    print(found.hash, code_version(made["g"]).hash, code_version(Node().walk).hash, found.uncertain)
"""

NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
shell.run_cell("import re\\nWORD = re.compile('w')\\nclass Page:\\n    limit = 3\\n", store_history=True)
shell.run_cell("# a comment\\ndef count(page):\\n    return WORD, Page.limit\\n", store_history=True)
from dqlab.runs.code.versions import code_version
found = code_version(shell.user_ns["count"])
print(found.hash, found.cell, repr(found.source), found.uncertain, found.name)
"""


def run(script: Path, **environment: str) -> str:
    path = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.cluster
def test_version_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Attach from another notebook compares versions; sets and addresses differ there."""
    outputs = set()
    for seed in ("0", "1", "77"):
        (tmp_path / seed).mkdir()
        script = tmp_path / seed / f"script{seed}.py"
        script.write_text("\n" * int(seed) + SCRIPT)
        outputs.add(run(script, PYTHONHASHSEED=seed))

    assert len(outputs) == 1
    assert outputs.pop().endswith("()\n")


@pytest.mark.cluster
def test_functions_and_classes_of_notebook_cells_have_sources(tmp_path: Path) -> None:
    """A notebook is where all of this is used."""
    script = tmp_path / "notebook.py"
    script.write_text(NOTEBOOK)

    digest, number, rest = run(script, IPYTHONDIR=str(tmp_path / "ipython")).split(" ", 2)

    by_hand = cell(
        "import re\nWORD = re.compile('w')\nclass Page:\n    limit = 3\n\n"
        "def count(page):\n    return WORD, Page.limit\n"
    )
    assert digest == code_version(by_hand["count"]).hash
    assert number == "2"
    assert rest == "'def count(page):\\n    return WORD, Page.limit' () count\n"
