"""A function can read any value: its version and its explanation look at all of them and fail at none."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import NotPicklable
from dqlab.runs.code.versions import code_version, exact_version, fingerprint
from tests.runs.code.test_code import cell

MODULES = """
abc array ast asyncio builtins code collections collections.abc concurrent.futures configparser contextlib
contextvars copy csv ctypes dataclasses datetime decimal distributed dqlab email.message enum fractions
functools gc hashlib http.client inspect io ipaddress itertools json logging mmap multiprocessing numbers
numpy operator os pandas pathlib pickle platform queue random re select selectors shelve signal socket sqlite3
ssl string struct subprocess tarfile tempfile threading time tkinter traceback types typing unittest.mock
urllib.request uuid warnings weakref xml.etree.ElementTree zipfile zlib _thread _weakrefset
""".split()  # noqa: SIM905


def reading(value: object) -> Any:
    names = cell("def f(x):\n    return isinstance(x, V)\n")
    names["V"] = value
    return names["f"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", MODULES)
def test_every_class_of_a_module_can_be_read(name: str) -> None:
    """`types.FunctionType` as a global ended in an AttributeError of the walk itself."""
    module = pytest.importorskip(name)
    for attribute in dir(module):
        value = getattr(module, attribute)
        if not isinstance(value, type):  # many hold all that a process of tests has, which takes minutes
            continue
        function = reading(value)

        assert code_version(function).hash == dq.explain(function).version.hash
        exact_version(function)


ODD = """
import types
class Meta(type):
    def __getattribute__(cls, name): raise SystemExit(name)
class Silent(metaclass=Meta): pass
class NoHash(type):
    def __eq__(cls, other): raise ValueError
    __hash__ = None
class Unhashable(metaclass=NoHash): pass
class Names(type):
    __name__ = __module__ = __bases__ = __dict__ = property(lambda cls: 1 / 0)
class Nameless(metaclass=Names):
    x = 1
class Raises:
    def __getattribute__(self, name): raise SystemExit(name)
class Anything:
    def __getattr__(self, name): return Anything()
    def __call__(self, *args, **names): return Anything()
class Class:
    __class__ = property(lambda self: 1 / 0)
class LiesFunction:
    __class__ = types.FunctionType
class LiesType:
    __class__ = type
class LiesModule:
    __class__ = types.ModuleType
class LiesSet:
    __class__ = set
class Dict:
    __dict__ = property(lambda self: 1 / 0)
class Reduces:
    def __reduce_ex__(self, protocol): return 3
class ReducesLong:
    def __reduce_ex__(self, protocol): return (str, (), None, None, None, None, None, 1)
class Fresh:
    def __reduce_ex__(self, protocol): return Fresh, (), {"next": Fresh()}
class Annotated:
    __annotations__ = 3
class Fields:
    __dataclass_fields__ = 3
class Iterates(dict):
    def items(self): raise SystemExit
    def __iter__(self): raise SystemExit
class Named:
    __name__ = __module__ = 3
class Wrapped:
    @property
    def __wrapped__(self): raise SystemExit
module = types.ModuleType("no_name")
del module.__name__
def annotated(): pass
annotated.__annotations__ = {3: Raises(), "a": Anything()}
def looped(): pass
looped.__wrapped__ = looped
looped.me = looped
deep = []
for _ in range(5_000): deep = [{"d": (deep,)}]
many = [Anything() for _ in range(3_000)]
cycle = {}
for n in range(500): cycle[n] = (cycle, [cycle])
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        *("Silent", "Silent()", "Unhashable", "Unhashable()", "Nameless", "Nameless()", "Raises()", "Anything()"),
        *("Class()", "LiesFunction()", "LiesType()", "LiesModule()", "LiesSet()", "Dict()", "Reduces()"),
        *("ReducesLong()", "Fresh()", "Annotated", "Fields", "Iterates(a=1)", "Named()", "Named", "Wrapped()"),
        *("module", "annotated", "looped", "deep", "many", "cycle"),
    ],
)
def test_objects_that_raise_or_lie_can_be_read(text: str) -> None:
    """Mocks, proxies and lazy objects answer for their class, their names and their state whatever they want."""
    names = cell(ODD)
    value = eval(text, names)
    function = reading(value)

    gc.disable()  # some end at the limit of recursion, where a finalizer of anything else would fail with them
    try:
        assert code_version(function).hash == code_version(function).hash
        exact_version(function)
        fingerprint([function])
        assert dq.explain(function).version.name == "f"
        assert code_version(value).name if callable(value) else True
    finally:
        gc.enable()


@pytest.mark.parametrize("what", ["lab", "queue", "run", "client"])
def test_function_that_reads_what_is_connected_is_refused_at_once(lab: dq.Lab, queue: dq.QueuePool, what: str) -> None:
    """`def f(x): return lab.name` took 13 to 27 s; all that runs in the process hangs on a lab."""
    run = queue.map(len, ["a"], name=f"run-{queue.name}").wait(timeout=30)
    function = reading({"lab": lab, "queue": queue, "run": run, "client": lab.client}[what])
    code_version(len)
    started = time.process_time()

    with pytest.raises(NotPicklable, match=r"global V used by f.*Build such objects .* inside the function"):
        queue.map(function, [1])
    assert "cannot be sent" in repr(dq.explain(function))
    # Well below one second for what is ours; a client of Dask has all that earlier tests left here behind it.
    assert time.process_time() - started < (12 if what == "client" else 5)
