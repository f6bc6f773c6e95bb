"""Values and functions reach other processes, and what cannot says why."""

from __future__ import annotations

import pickle
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dqlab.cluster.transport.sealed import (
    SealError,
    global_names,
    open_value,
    seal_function,
    seal_or_explain,
    seal_value,
)
from dqlab.errors import NotPicklable
from tests.kit.forking import run

pytestmark = pytest.mark.lowest


class Config:
    """Holds whatever a test gives it."""

    def __init__(self, conn: object) -> None:
        self.name = "main"
        self.conn = conn


class Slotted:
    """No __dict__, so its state is found another way."""

    __slots__ = ("handle",)

    def __init__(self, handle: object) -> None:
        self.handle = handle


class Stateful:
    """Leaves its lock at home; only the other attribute can be to blame."""

    def __init__(self, other: object) -> None:
        self.lock = threading.Lock()
        self.other = other

    def __getstate__(self) -> dict[str, object]:
        return {"other": self.other}


class Refuses:
    """Its own pickling code fails, in its own words."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise ValueError("call close() first")


def blame(value: object) -> str:
    with pytest.raises(NotPicklable) as caught:
        seal_or_explain(value, what="argument 3")
    assert isinstance(caught.value.reason, str)
    return caught.value.reason


NOTEBOOK = """
import abc, collections, dataclasses, enum, functools, sys, typing
from dqlab.cluster.transport.sealed import seal_function, seal_value

FACTOR = 3
T = typing.TypeVar("T")
Number = typing.NewType("Number", int)

class Page:
    number = 7
class Point(typing.NamedTuple):
    x: int
    y: int = 2
    def total(self): return FACTOR * (self.x + self.y)
class Farther(Point):
    __slots__ = ()
    def total(self): return 1 + super().total()
class Boxed(typing.NamedTuple, typing.Generic[T]):
    held: T
Pair = collections.namedtuple("Pair", "a b")
class Colour(enum.Enum):
    RED = 1
class Entry(typing.TypedDict):
    a: int
@dataclasses.dataclass(slots=True)
class Slotted:
    a: int = FACTOR
class Able(typing.Protocol):
    def run(self) -> int: ...
class Base(abc.ABC, typing.Generic[T]):
    made = set()
    def __init_subclass__(cls, /, tag="", **more):
        Base.made.add(tag)
    @abc.abstractmethod
    def run(self): ...
class Derived(Base[int], tag="derived"):
    class Within(typing.NamedTuple):
        deep: int
    def run(self): return FACTOR
class Meta(type):
    def named(cls): return cls.__name__
class Made(metaclass=Meta): pass
class Code(Exception):
    def __init__(self, code): super().__init__(f"code {code}"); self.code = code
@functools.singledispatch
def size(value): return 1
@size.register
def _(value: list): return sum(map(size, value))
class Sizes:
    @functools.singledispatchmethod
    def of(self, value): return "any"
    @of.register
    def _(self, value: int): return "int"

def double(x): return 2 * x
def body_of_a_class(x):
    class Inner:
        class Innermost:
            factor = double(FACTOR)
    return x * Inner.Innermost.factor
def named_tuple_in_a_body(x):
    class Local(typing.NamedTuple):
        x: int
        y: int = FACTOR
    return tuple(Local(x))
def nested(x): return [(lambda: [double(FACTOR) for _ in range(x)])() for _ in range(x)]
def code_of(x):
    try: raise Code(x)
    except Code as error: return str(error), error.code

CASES = {
    "a function": (lambda x: double(x) + Page.number, 9),
    "a named tuple": (lambda x: (Point(x).total(), Point(x)._replace(y=5)._asdict()), (9, {"x": 1, "y": 5})),
    "a subclass of a named tuple": (lambda x: (Farther(x).total(), Farther._fields), (10, ("x", "y"))),
    "a generic named tuple": (lambda x: tuple(Boxed[int](x)), (1,)),
    "a collections.namedtuple": (lambda x: Pair(x, 2)._asdict(), {"a": 1, "b": 2}),
    "an enum": (lambda x: Colour(x).name, "RED"),
    "a TypedDict": (lambda x: Entry(a=x), {"a": 1}),
    "a dataclass with slots": (lambda x: dataclasses.asdict(Slotted()), {"a": 3}),
    "a protocol": (lambda x: Able.__name__, "Able"),
    "an abstract generic class": (lambda x: (Derived().run(), "derived" in Base.made), (3, True)),
    "a class in a class": (lambda x: Derived.Within(x).deep, 1),
    "a metaclass": (lambda x: Made.named(), "Made"),
    "an exception with arguments": (code_of, ("code 1", 1)),
    "a new type": (lambda x: Number(x), 1),
    "single dispatch": (lambda x: (size([x, [x, x]]), size("a")), (3, 1)),
    "single dispatch of a method": (lambda x: (Sizes().of(x), Sizes().of("")), ("int", "any")),
    "globals in a class in a class in a body": (body_of_a_class, 6),
    "globals in a named tuple in a body": (named_tuple_in_a_body, (1, 3)),
    "globals in a lambda and comprehensions": (nested, [[6]]),
}

def write(file):
    sealed = {name: (seal_function(function), wanted) for name, (function, wanted) in CASES.items()}
    open(file, "wb").write(seal_value((seal_value((Page(), Point(1))), sealed)))
"""
"""What a notebook or script may define, with what its functions return for 1."""


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_whatever_a_script_defines_opens_in_another_process(tmp_path: Path, name: str) -> None:
    """A name of ``__main__`` means another module there; so does ``__mp_main__``, as a child by spawn calls its own."""
    script, file = tmp_path / "notebook.py", tmp_path / "sealed"
    script.write_text(NOTEBOOK + f"if __name__ == '__main__':\n    write({str(file)!r})\n")
    child = (
        "import sys; from multiprocessing import spawn; spawn._fixup_main_from_path(sys.argv[1]);"
        "sys.modules['__main__'].write(sys.argv[2])"
    )
    run([sys.executable, *([] if name == "__main__" else ["-c", child]), str(script), str(file)], check=True)
    values, sealed = open_value(file.read_bytes())

    page, point = open_value(values)
    assert (page.number, point.total(), type(page).__module__) == (7, 9, name)
    found = {case: open_value(function)(1) for case, (function, _) in sealed.items()}
    assert found == {case: wanted for case, (_, wanted) in sealed.items()}


def test_shortest_name_in_main_is_not_taken_for_plain_data() -> None:
    """Short pickles skip the search for __main__; a name of one letter must not slip through."""
    main = sys.modules["__main__"]

    def f() -> int:
        return 3

    f.__module__, f.__qualname__, f.__name__ = "__main__", "f", "f"
    main.f = f  # type: ignore[attr-defined]
    try:
        sealed = seal_value(f)
    finally:
        del main.f  # type: ignore[attr-defined]

    assert open_value(sealed)() == 3


def test_whatever_pickling_raises_becomes_one_error() -> None:
    """The value's own code runs while it is pickled, and may raise anything."""
    with pytest.raises(SealError) as caught:
        seal_value(Refuses())

    assert caught.value.reason == "ValueError: call close() first"
    assert str(pickle.loads(pickle.dumps(caught.value))) == caught.value.reason


def test_deep_nesting_is_an_error_with_a_reason() -> None:
    """A RecursionError from inside pickle says nothing to the person who nested the lists."""
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]

    with pytest.raises(SealError, match="nested too deeply"):
        seal_value(nested)
    assert blame(nested) == "it is nested too deeply"


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (LOCK, "it is a _thread.lock"),
        ((n for n in "ab"), "it is a generator"),
        ([1, 2, LOCK], "item 2 of a list is a _thread.lock"),
        ({"db": LOCK}, "entry 'db' of a dict is a _thread.lock"),
        ({("a", 1): LOCK}, "entry ('a', 1) of a dict is a _thread.lock"),
        ([1, Refuses()], "item 1 of a list is a {here}.Refuses (ValueError: call close() first)"),
        (Config(LOCK), "attribute .conn of {here}.Config is a _thread.lock"),
        (Slotted(LOCK), "attribute .handle of {here}.Slotted is a _thread.lock"),
        (Stateful(LOCK), "attribute .other of {here}.Stateful is a _thread.lock"),
        (
            [Config((LOCK,))],
            "item 0 of a tuple in attribute .conn of {here}.Config in item 0 of a list is a _thread.lock",
        ),
        (ValueError("bad", LOCK), "part 1 of ValueError is a _thread.lock"),
        (partial(print, LOCK), "it is a functools.partial (TypeError: cannot pickle '_thread.lock' object)"),
        (Config(LOCK).__init__, "attribute .conn of {here}.Config in part 0 of method is a _thread.lock"),
    ],
)
def test_reason_names_the_path_to_the_culprit(value: object, reason: str) -> None:
    """`cannot pickle '_thread.lock' object` is useless when nobody knows whose lock it is."""
    assert blame(value) == reason.format(here=__name__)


def test_reason_names_what_a_function_holds() -> None:
    """Functions carry more than their text: what they captured, their defaults, their globals."""
    lock = threading.Lock()

    def captures() -> object:
        return lock

    def with_default(lock: object = lock) -> object:
        return lock

    def reads_global() -> object:
        return LOCK

    assert blame(captures) == "variable lock captured by captures is a _thread.lock"
    assert blame(with_default) == "a default of with_default is a _thread.lock"
    assert blame(reads_global) == "global LOCK used by reads_global is a _thread.lock"
    with pytest.raises(NotPicklable, match=r"^function .*captures cannot be pickled: variable lock captured"):
        seal_function(captures)


def test_global_names_hold_no_attributes() -> None:
    """`x.LOCK` reads an attribute; only `LOCK` reads the global."""

    def reads(x: Any) -> object:
        return x.LOCK, [Path(part) for part in x]

    assert global_names(reads.__code__) == ("Path",)


def test_function_keeps_the_file_or_cell_it_was_written_in() -> None:
    """Tracebacks and views find its lines and its cell by that name; cloudpickle 3.1.3 writes "<dynamic-code>"."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def outer(x):\n    def inner(y): return 1 / y\n    return inner", "<cell 5>", "exec"), made)

    for outer in (open_value(seal_function(made["outer"])), open_value(seal_value(made["outer"]))):
        assert outer.__code__.co_filename == "<cell 5>"
        assert outer(1).__code__.co_filename == "<cell 5>"


@pytest.mark.parametrize("hold", [lambda file: file, lambda file: [{"a": file}]], ids=["itself", "inside"])
def test_an_open_file_is_refused(tmp_path: Path, hold: Any) -> None:
    """Its text arrived as a StringIO, and a result was no file any more, in silence."""
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    with (tmp_path / "a.txt").open(encoding="utf-8") as file, pytest.raises(SealError, match="open it where it is"):
        seal_value(hold(file))


def test_the_standard_streams_are_those_of_the_process_that_opens_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    assert open_value(seal_value([sys.stdout, sys.stderr])) == [sys.stdout, sys.stderr]
