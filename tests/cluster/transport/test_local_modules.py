"""Modules beside a notebook: what a function takes from them is what the notebook has, or is refused; never old."""

from __future__ import annotations

import functools
import importlib
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.cluster.transport.local_modules import ModuleDiffers, is_local, lazy_imports, sources_of
from dqlab.cluster.transport.sealed import named_in, open_value
from dqlab.runs.code.sealing import function_bytes
from dqlab.runs.code.versions import code_version, fingerprint
from tests.runs.code.test_code import cell

pytestmark = pytest.mark.cluster

HELPERS = """
import threading
LIMIT = 3
lock = threading.Lock()
class Item:
    def __init__(self, x): self.x = x
    def value(self): return ("old", self.x)
def get(x):
    with lock:
        return Item(x).value() + (LIMIT,)
"""
NAME = "dq_helpers_beside"


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in a folder that only this process has in its path."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / f"{NAME}.py"
    path.write_text(HELPERS)
    yield path
    for name in [name for name in sys.modules if name.startswith(NAME)]:
        del sys.modules[name]


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace("old", "EDITED").replace("LIMIT = 3", "LIMIT = 40"))


FORKING = """
import os, pickle, struct, sys
import cloudpickle, dqlab.cluster.transport.sealed, dqlab.runs.code.versions
sys.dont_write_bytecode = True
while head := sys.stdin.buffer.read(16):
    of_folder, of_blob = struct.unpack("!QQ", head)
    folder, blob = sys.stdin.buffer.read(of_folder).decode(), sys.stdin.buffer.read(of_blob)
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        if folder:
            sys.path.insert(0, folder)
        try:
            text = str(pickle.loads(blob)(1))
        except BaseException as error:
            text = repr(error)
        with open(theirs, "w") as told:
            told.write(text)
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as heard:
        text = heard.read()
    os.waitpid(child, 0)
    sys.stdout.buffer.write(struct.pack("!Q", len(text)) + text)
    sys.stdout.buffer.flush()
"""


@functools.cache
def forking() -> subprocess.Popen[bytes]:
    """Return a process that forks another for each function: to start one costs as much as many of these."""
    return subprocess.Popen([sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.fixture(scope="module", autouse=True)
def ends() -> Iterator[None]:
    """End that process."""
    yield
    if forking.cache_info().currsize:
        forking().communicate(timeout=10)
        forking.cache_clear()


def elsewhere(blob: bytes, folder: Path | None) -> str:
    """Return what a function gives for 1 in another process, which has the folder in its path or has not."""
    process, place = forking(), str(folder or "").encode()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(struct.pack("!QQ", len(place), len(blob)) + place + blob)
    process.stdin.flush()
    (size,) = struct.unpack("!Q", process.stdout.read(8))
    return process.stdout.read(size).decode()


WAYS = {
    "name": f"from {NAME} import get\ndef f(x):\n    return get(x)\n",
    "module": f"import {NAME}\ndef f(x):\n    return {NAME}.get(x)\n",
    "itself": f"from {NAME} import get as f\n",
    "method": f"import {NAME}\ndef f(x):\n    return {NAME}.Item(x).value() + ({NAME}.LIMIT,)\n",
}


@pytest.mark.parametrize("way", WAYS)
def test_module_that_others_cannot_import_travels_along(helpers: Path, way: str) -> None:
    """`sys.path.insert` in the notebook: every document died of ModuleNotFoundError."""
    text = HELPERS.replace("with lock:", "if True:").replace("lock = threading.Lock()", "")
    helpers.write_text(text)

    assert elsewhere(function_bytes(cell(WAYS[way])["f"]), None) == "('old', 1, 3)"


@pytest.mark.parametrize("way", WAYS)
def test_edited_and_reloaded_module_is_never_old(helpers: Path, way: str) -> None:
    """`importlib.reload` and `%autoreload 2`: workers ran the old code, in silence."""
    f = cell(WAYS[way])["f"]
    before, version = function_bytes(f), code_version(f).hash
    assert open_value(before)(1) == ("old", 1, 3)  # this process is also one that imported it long ago

    edit(helpers)
    importlib.reload(sys.modules[NAME])
    f = cell(WAYS[way])["f"]

    assert code_version(f).hash != version
    after = function_bytes(f)
    assert elsewhere(after, helpers.parent) == "('EDITED', 1, 40)"
    assert elsewhere(before, helpers.parent) == "('old', 1, 3)"


def test_unchanged_module_is_the_one_that_is_imported_there(helpers: Path) -> None:
    """Its classes and its state are those of the worker's own import: `isinstance` and singletons are as ever."""
    f = cell(f"import {NAME}\ndef f(x):\n    import sys\n    return sys.modules['{NAME}'].Item is {NAME}.Item\n")["f"]

    assert elsewhere(function_bytes(f), helpers.parent) == "True"


@given(st.lists(st.sampled_from(["a", "b.c", "\x8c", "é", "x" * 140, "-]^"])), st.binary(max_size=40))
def test_names_in_a_pickle_are_found_whatever_stands_around_them(held: list[str], around: bytes) -> None:
    names = ["a", "b.c", "c", "\x8c", "é", "x" * 140, "-]^", "]"]
    sealed = pickle.dumps((around, held, around), 5)

    assert set(held) <= set(named_in(sealed, names))
    assert set(named_in(pickle.dumps(held, 5), names)) == set(held)


def test_what_can_neither_be_named_nor_sent_is_refused(helpers: Path) -> None:
    """A sentence, where old code in silence would be the other way out."""
    helpers.write_text("import threading\nlocks = [threading.Lock()]\ndef get(x):\n    return len(locks), 'old'\n")
    f = cell(WAYS["name"])["f"]
    assert elsewhere(function_bytes(f), helpers.parent) == "(1, 'old')"

    edit(helpers)

    assert "ModuleDiffers" in elsewhere(function_bytes(f), helpers.parent)
    assert ModuleDiffers.__name__ in elsewhere(function_bytes(f), None)


def test_module_that_is_imported_inside_the_function_is_imported_again_when_its_file_changes(helpers: Path) -> None:
    """`import helpers` in the function's body: the worker imported it once, and kept it."""
    source = f"def f(x):\n    import {NAME}\n    return {NAME}.get(x)\n"
    f = cell(source)["f"]
    version = code_version(f).hash
    assert open_value(function_bytes(f))(1) == ("old", 1, 3)

    edit(helpers)

    assert code_version(f).hash != version
    assert open_value(function_bytes(f))(1) == ("EDITED", 1, 40)
    assert elsewhere(function_bytes(f), None) == "('EDITED', 1, 40)"


REACHING = {
    "a helper": "def h(x):\n    import {0}\n    return {0}.K\ndef f(x):\n    return h(x)\n",
    "a partial": "import functools\ndef g(y, x):\n    import {0}\n    return {0}.K\nf = functools.partial(g, 1)\n",
    "a wrapped function": (
        "import functools\ndef wrap(fn):\n    @functools.wraps(fn)\n    def inner(x): return fn(x)\n    return inner\n"
        "@wrap\ndef f(x):\n    import {0}\n    return {0}.K\n"
    ),
    "a callable object": "class C:\n    def __call__(self, x):\n        import {0}\n        return {0}.K\nf = C()\n",
    "a method": (
        "class C:\n    def run(self):\n        import {0}\n        return {0}.K\ndef f(x):\n    return C().run()\n"
    ),
    "a cached function": (
        "import functools\n@functools.cache\ndef h():\n    import {0}\n    return {0}.K\ndef f(x):\n    return h()\n"
    ),
    "a value": "def h(x):\n    import {0}\n    return {0}.K\nV = {{'h': [h]}}\ndef f(x):\n    return V['h'][0](x)\n",
    "from package import module": "def f(x):\n    from {0}_pk import m\n    return m.K\n",
    "import package.module as": "def f(x):\n    import {0}_pk.m as m\n    return m.K\n",
    "a relative import": "import {0}_pk.rel\ndef f(x):\n    return {0}_pk.rel.g(x)\n",
    "a module that imports it": "def f(x):\n    import {0}_over\n    return {0}_over.{0}.K\n",
    "a package that imports it": "def f(x):\n    from {0}_pk import over\n    return over.K\n",
    "__import__": "def f(x):\n    return __import__('{0}').K\n",
    "import_module": "import importlib\ndef f(x):\n    return importlib.import_module('{0}_pk.m').K\n",
}


@pytest.mark.parametrize("way", REACHING)
def test_edited_module_is_imported_again_however_the_function_comes_to_import_it(helpers: Path, way: str) -> None:
    """The version changed and the worker's module did not: a run of the new code gave the results of the old one."""
    package = helpers.with_name(f"{NAME}_pk")
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rel.py").write_text("def g(x):\n    from . import m\n    return m.K\n")
    (package / "over.py").write_text("from .m import K\n")
    helpers.with_name(f"{NAME}_over.py").write_text(f"import {NAME}\n")
    edited = helpers, package / "m.py"
    for path in edited:
        path.write_text("K = 'old'\n")
    f = cell(REACHING[way].format(NAME))["f"]
    version = code_version(f).hash
    assert open_value(function_bytes(f))(1) == "old"

    for path in edited:
        path.write_text("K = 'EDITED'\n")

    assert code_version(f).hash != version
    assert open_value(function_bytes(f))(1) == "EDITED"
    assert elsewhere(function_bytes(f), None) == "EDITED"


def test_import_in_a_function_of_a_module_that_cannot_be_sent_is_seen(helpers: Path) -> None:
    """Its pickle fails before it comes to the import, and the import counts all the same."""
    lower = helpers.with_name(f"{NAME}_lower.py")
    lower.write_text("K = 'old'\n")
    helpers.write_text(
        "import threading\nlocks = [threading.Lock()]\n"
        f"def get(x):\n    import {NAME}_lower\n    return len(locks), {NAME}_lower.K\n"
    )
    f = cell(WAYS["name"])["f"]
    assert open_value(function_bytes(f))(1) == (1, "old")

    lower.write_text("K = 'EDITED'\n")

    assert open_value(function_bytes(f))(1) == (1, "EDITED")


def test_sealing_leaves_no_trace(helpers: Path) -> None:
    """Dask pickles in other threads of this process; what travels by value here must not there."""
    import cloudpickle

    before = set(cloudpickle.list_registry_pickle_by_value())  # modules of other tests may be there
    names = cell(WAYS["name"])
    function_bytes(names["f"])

    assert cloudpickle.list_registry_pickle_by_value() == before
    assert pickle.loads(cloudpickle.dumps(names["get"])) is names["get"]


def test_installed_modules_are_not_local(helpers: Path) -> None:
    """Packages have versions, and are the same everywhere or said to be missing."""
    names = cell(WAYS["module"])
    assert is_local(names[NAME])
    for module in (pickle, pytest, importlib.import_module("dqlab"), importlib.import_module("numpy")):
        assert not is_local(module)
    assert sources_of(NAME) == [str(helpers)]
    assert sources_of("numpy.linalg") == sources_of("json") == sources_of("no.such.module") == []
    assert lazy_imports(cell("def f():\n    import json, numpy.linalg\n")["f"].__code__) == set()


# --- values that a version takes for equal -------------------------------------------------------

ORDER = "V = {'a': 1, 'b': 2}", "V = {'b': 2, 'a': 1}", "next(iter(V))"
LIKE = {
    "the order of a dictionary": ORDER,
    "the order inside an object": (
        *(f"{each.replace('= ', '= [(').rstrip()},)]" for each in ORDER[:2]),
        "next(iter(V[0][0]))",
    ),
    "the end of a long list": (
        "V = [(i, 'old') for i in range(120_000)]",
        "V = [(i, 'old' if i < 119_999 else 'new') for i in range(120_000)]",
        "V[-1][1]",
    ),
    "the order of functions of one kind": (
        "def make(n):\n    def g(): return n\n    return g\nV = [make(1), make(2)]",
        "def make(n):\n    def g(): return n\n    return g\nV = [make(2), make(1)]",
        "V[0]()",
    ),
    "whether two parts are one": (
        "V = [[]]\nV.append(V[0])",
        "V = [[], []]",
        "V[0] is V[1]",
    ),
}


@pytest.mark.parametrize("what", LIKE)
def test_cached_function_never_gives_what_it_gave_for_other_values(what: str) -> None:
    """Workers kept it by its code version: `on_existing="new"` and a new name gave the old values too."""
    *values, look = LIKE[what]
    text = "{}\nimport functools\n@functools.cache\ndef get():\n    return {}\ndef f(x):\n    return get()\n"
    cells = [cell(text.format(value, look)) for value in values]
    assert len({code_version(names["f"]).hash for names in cells}) == 1
    blobs = [function_bytes(names["f"]) for names in cells]

    found = [open_value(blob) for blob in blobs]
    assert [f(1) for f in found] == [names["f"](1) for names in cells]
    assert found[0](1) != found[1](1)


@pytest.mark.parametrize("what", LIKE)
def test_module_whose_values_were_changed_is_never_that_of_the_worker(helpers: Path, what: str) -> None:
    """Workers took their own import for the notebook's, whose dictionary had another order."""
    first, second, look = LIKE[what]
    helpers.write_text(f"{first}\ndef get(x):\n    return {look}\n")
    f = cell(WAYS["name"])["f"]
    old = f(1)
    assert elsewhere(function_bytes(f), helpers.parent) == str(old)

    exec(second, vars(sys.modules[NAME]))

    assert elsewhere(function_bytes(f), helpers.parent) == str(f(1)) != str(old)


def test_unchanged_module_with_values_of_all_kinds_is_the_one_that_is_imported_there(helpers: Path) -> None:
    """What tells values apart must give the same for the same: with other seeds of hashes, in other processes."""
    helpers.write_text(
        "import collections, dataclasses, enum, logging, re, threading\nfrom pathlib import Path\n"
        "class Kind(enum.Enum):\n    A = 1\n"
        "@dataclasses.dataclass\nclass P:\n    x: int\n    kinds: set\n"
        "V = {'p': P(1, {'a', 'b', 'c', ('d', 'e')}), 'k': [Kind.A, P, re.compile('a+'), Path('a')]}\n"
        "V['self'] = V\nlog = logging.getLogger(__name__)\nlock = threading.Lock()\n"
        "held = [lock, {'u', 'v'}, 1.5]\nmany = [(i, str(i)) for i in range(5_000)]\n"
        "groups = collections.defaultdict(set, a={'x', 'y', 'z'})\n"
        "def get(x):\n    return V, log, lock, held, many, groups, x in {'p', 'q', 'r'}\n"
    )
    f = cell(
        f"import {NAME}\ndef f(x):\n    import sys\n"
        f"    return sys.modules['{NAME}'].get is {NAME}.get and len({NAME}.get(x))\n"
    )["f"]

    assert elsewhere(function_bytes(f), helpers.parent) == "7"


# --- what code can read of classes and functions ---------------------------------------------------

READ = {
    "metadata of a field": (
        "import dataclasses\n@dataclasses.dataclass\n"
        "class T:\n    a: int = dataclasses.field(default=0, metadata={'k': 1})\n",
        ("'k': 1", "'k': 2"),
        "dataclasses.fields(T)[0].metadata['k']",
    ),
    "an own attribute with underscores": ("class C:\n    __version__ = 1\n", ("= 1", "= 2"), "C.__version__"),
    "a method that is a builtin": (
        "class C(dict):\n    __getattr__ = dict.get\n",
        ("dict.get", "dict.__getitem__"),
        "C.__getattr__.__name__",
    ),
    "whether instances have hashes": (
        "class C:\n    __hash__ = object.__hash__\n",
        ("= object.__hash__", "= None"),
        "C.__hash__ is None",
    ),
    "an annotation of a function": ("def g(x: int): pass\n", ("x: int", "x: float"), "g.__annotations__['x'](1)"),
    "a class that an annotation names": (
        "class In:\n    def v(self): return 1\nclass T:\n    a: list[In]\n",
        ("return 1", "return 2"),
        "T.__annotations__['a'].__args__[0]().v()",
    ),
    "metadata of an annotation": (
        "import typing\nclass M:\n    def __init__(self, n): self.n = n\n"
        "class T:\n    a: typing.Annotated[int, M(1)]\n",
        ("M(1)", "M(2)"),
        "T.__annotations__['a'].__metadata__[0].n",
    ),
    "an attribute of a member of an enum": (
        "import enum\nclass E(enum.Enum):\n    A = 1\nE.A.w = 1\n",
        ("w = 1", "w = 2"),
        "E.A.w",
    ),
    "an attribute of an enum": ("import enum\nclass E(enum.Enum):\n    A = 1\nE.w = 1\n", ("w = 1", "w = 2"), "E.w"),
    "keys of a TypedDict": (
        "import typing\nclass T(typing.TypedDict, total=True):\n    a: int\n",
        ("total=True", "total=False"),
        "sorted(T.__required_keys__)",
    ),
    "an argument of a generic base": (
        "import typing\nX = typing.TypeVar('X')\nclass A(typing.Generic[X]): pass\nclass B(A[int]): pass\n",
        ("A[int]", "A[str]"),
        "typing.get_args(B.__orig_bases__[0])[0].__name__",
    ),
    "the bound of a type variable": (
        "import typing\nX = typing.TypeVar('X', bound=int)\n",
        ("bound=int", "bound=str"),
        "X.__bound__.__name__",
    ),
    "the type behind a new type": (
        "import typing\nX = typing.NewType('X', int)\n",
        ("int)", "str)"),
        "X.__supertype__.__name__",
    ),
    "a class that was registered": (
        "import abc\nclass A(abc.ABC): pass\nA.register(int)\n",
        ("register(int)", "register(str)"),
        "issubclass(int, A)",
    ),
    "an attribute of a partial": (
        "import functools\nh = functools.partial(int)\nh.zz = 1\n",
        ("zz = 1", "zz = 2"),
        "h.zz",
    ),
    "what a function says that it wraps": ("def h(): pass\nh.__wrapped__ = 1\n", ("= 1", "= 2"), "h.__wrapped__"),
    "a docstring that was set later": ("def h(): pass\nh.__doc__ = 'a'\n", ("'a'", "'b'"), "h.__doc__"),
    "the docstring of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    'One.'\n    a: int = 1\n",
        ("One", "Two"),
        "C.__doc__",
    ),
    "a function that exec made": (
        "ns = {}\nexec('def h(): return 1', ns)\nh = ns['h']\n",
        ("return 1", "return 2"),
        "h()",
    ),
    "a class that exec made": (
        "ns = {}\nexec('class C:\\n    def m(self): return 1', ns)\nC = ns['C']\n",
        ("return 1", "return 2"),
        "C().m()",
    ),
    "a method of a dataclass that exec made": (
        "import dataclasses\nns = {'__name__': __name__}\n"
        "exec('class C:\\n    a: int = 1\\n    def m(self): return 1', ns)\nC = dataclasses.dataclass(ns['C'])\n",
        ("return 1", "return 2"),
        "C().m()",
    ),
}


@pytest.mark.parametrize("what", READ)
def test_what_code_reads_of_a_class_or_a_function_is_never_old(helpers: Path, what: str) -> None:
    """The edited module was taken for the worker's own, in a new run and in single calls; cells got old results."""
    source, (old, new), look = READ[what]
    assert old in source
    text = f"{source}def get(x):\n    return {look}\n"
    helpers.write_text(text)
    f = cell(WAYS["name"])["f"]
    here, version = f(1), code_version(f).hash
    assert elsewhere(function_bytes(f), helpers.parent) == elsewhere(function_bytes(f), None) == str(here)

    helpers.write_text(text.replace(old, new))
    importlib.reload(sys.modules[NAME])
    edited = cell(WAYS["name"])["f"]
    assert code_version(edited).hash != version
    helpers.write_text(text)  # a worker that has imported the old one
    for _ in range(2):
        assert elsewhere(function_bytes(edited), helpers.parent) == str(edited(1)) != str(here)

    again = cell(text.replace(old, new) + "f = get\n")["f"]
    assert code_version(again).hash != code_version(cell(text + "f = get\n")["f"]).hash
    assert code_version(again).hash == code_version(cell("\n\n" + text.replace(old, new) + "f = get\n")["f"]).hash


# --- cached functions --------------------------------------------------------------------------

CACHED = """
import functools, os
@functools.cache
def get_model():
    return os.urandom(4)
def f(x):
    return get_model()
def g(x):
    return x, get_model()
"""


def opened(f: Callable[..., Any]) -> Callable[..., Any]:
    return open_value(function_bytes(f))  # type: ignore[no-any-return]


def test_model_is_loaded_once_for_all_functions_that_use_it() -> None:
    """Editing what uses the model must not load the model again; editing the model must."""
    one, two = cell(CACHED), cell(CACHED.replace("return x, get_model()", "return -x, get_model()"))
    other = cell(CACHED.replace("urandom(4)", "urandom(5)"))
    f, g = opened(one["f"]), opened(two["g"])

    assert f(1) == g(1)[1]
    assert len(opened(other["f"])(1)) == 5


CHANGES = {
    "a value": "LIMIT = {}",
    "a table in place": "TABLE['k'] = {}",
    "an object in place": "ITEM.x = {}",
    "an attribute of a class": "Item.limit = {}",
    "a default": "get.__defaults__ = ({},)",
    "an attribute of a function": "get.by = {}",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", CHANGES)
def test_single_calls_see_each_change_in_a_module(helpers: Path, change: str, way: str) -> None:
    """`cfg.K = k` between two `submit`: up to 19 of 20 answers were those of an older value."""
    helpers.write_text(
        "LIMIT = 0\nTABLE = {'k': 0}\nclass Item:\n    limit = 0\n    def __init__(self, x): self.x = x\n"
        "    def value(self): return (get(self.x),)\nITEM = Item(0)\n"
        "def get(x, y=0):\n    return LIMIT, TABLE['k'], ITEM.x, Item.limit, y, getattr(get, 'by', 0)\n"
    )
    f = cell(WAYS[way])["f"]
    module, sent, here = sys.modules[NAME], [], []
    for n in range(11, 31):
        exec(CHANGES[change].format(n), vars(module))
        sent.append(function_bytes(f))
        here.append(f(1))
    assert len(set(map(str, here))) == len(here)

    def each(x: int) -> list[Any]:
        import pickle

        return [pickle.loads(blob)(x) for blob in sent]

    assert elsewhere(function_bytes(each), helpers.parent) == str(here)


def test_single_calls_seal_a_function_once(helpers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come by the thousand; what a function of a module rests on is looked at, and described once."""
    described = []
    monkeypatch.setattr(
        "dqlab.runs.code.sealing.fingerprint", lambda values: described.append(1) or fingerprint(values)
    )
    helpers.write_text("LIMIT = 3\nTABLE = {'k': 0}\ndef get(x):\n    return LIMIT, TABLE['k']\n")
    f = cell(WAYS["name"])["f"]

    assert len({function_bytes(f) for _ in range(5)}) == len(described) == 1
