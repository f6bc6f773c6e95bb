"""Classes of a notebook travel by value; reading results leaves those that the notebook has as they are."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest

import dqlab as dq
from dqlab.runs.submit.elements import ClassTravels

CELL = """
import dataclasses, enum, collections

class Plain:
    factor = 1
    made = []
    def __init__(self, a): self.a = a
    def __init_subclass__(cls): Plain.made.append(cls.__name__)

class Derived(Plain):
    pass

@dataclasses.dataclass
class Data:
    a: int

@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

class Pair(collections.namedtuple("Pair", "a b")):
    __slots__ = ()

def same(x): return x
def make_plain(x): return Plain(x)
def make_derived(x): return Derived(x)
def times(x): return x * Plain.factor
"""


@pytest.fixture
def cell() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(CELL, names)
    return names


def test_reading_results_changes_no_class_of_the_notebook(queue: dq.QueuePool, cell: dict[str, Any]) -> None:
    """It took back what was set since the run was mapped, and the next run computed with the old value."""
    plain = cell["Plain"]
    run = queue.map(cell["make_plain"], [1, 2]).wait(timeout=30)
    plain.factor = 5

    values = run.results(timeout=30)[:]

    assert [(type(value) is plain, value.a) for value in values] == [(True, 1), (True, 2)]
    assert plain.factor == 5
    assert queue.map(cell["times"], [1, 2, 3]).results(timeout=30)[:] == [5, 10, 15]


@pytest.mark.parametrize("kind", ["Plain", "Derived", "Data", "Frozen"])
def test_the_same_documents_attach_after_results_of_their_class_were_read(
    queue: dq.QueuePool, cell: dict[str, Any], kind: str
) -> None:
    """`RunExists` said that they were other documents: reading had replaced what their pickles hold of the class."""
    documents = [cell[kind](number) for number in range(3)]

    for _ in range(3):
        values = queue.map(cell["same"], documents, name=f"run-{queue.name}").results(timeout=30)[:]
        assert [(type(value), value.a) for value in values] == [(cell[kind], number) for number in range(3)]


def test_a_class_that_this_process_does_not_have_is_made_from_the_result(queue: dq.QueuePool) -> None:
    """As in the kernel of a colleague, or after a restart."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(CELL, names)
    run = queue.map(names["make_plain"], [1, 2], name=f"run-{queue.name}").wait(timeout=30)
    names.clear()  # nothing holds the class any more
    gc.collect()

    one, two = run.results(timeout=30)[:]
    assert (one.a, two.a, type(one).factor, type(one) is type(two)) == (1, 2, 1, True)


def test_failed_documents_are_opened_without_changing_their_class(queue: dq.QueuePool, cell: dict[str, Any]) -> None:
    def fails(value: Any) -> None:
        raise ValueError(value.a)

    run = queue.map(fails, [cell["Plain"](1)], retry=dq.Retry(0)).wait(timeout=30)
    cell["Plain"].factor = 5

    (letter,) = run.failures()
    assert letter.argument.a == 1
    assert cell["Plain"].factor == 5


SLOTS = """
import abc, dataclasses, typing

@dataclasses.dataclass(slots=True)
class Data:
    a: int
    b: str = "b"

@dataclasses.dataclass(slots=True, frozen=True)
class Frozen:
    a: int

class Base:
    __slots__ = ("a", "__hidden", "__weakref__")
    def __init__(self, a): self.a, self.__hidden = a, -a
    def hidden(self): return self.__hidden

class Derived(Base):
    __slots__ = "own"
    def __init__(self, a): super().__init__(a); self.own = 2 * a

class Open(Base):
    pass

class Abstract(abc.ABC):
    __slots__ = ["a", "__dict__"]
    def __init__(self, a): self.a, self.free = a, a + 1

T = typing.TypeVar("T")

class Generic(typing.Generic[T]):
    __slots__ = {"a": "documented"}
    def __init__(self, a): self.a = a

def make(kind): return lambda x: kind(x)
def same(x): return x
"""


@pytest.mark.parametrize("kind", ["Data", "Frozen", "Base", "Derived", "Open", "Abstract", "Generic"])
@pytest.mark.parametrize("way", ["results", "documents"])
def test_instances_of_classes_with_slots_go_there_and_come_back(queue: dq.QueuePool, kind: str, way: str) -> None:
    """Their classes were made without slots there, and what came back did not fit the class here."""
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(SLOTS, cell)
    own = cell[kind]
    sent = [own(x) for x in range(3)]

    if way == "results":
        values = queue.map(cell["make"](own), range(3)).results(timeout=30)[:]
    else:
        values = queue.map(cell["same"], sent).results(timeout=30)[:]

    assert [type(value) is own for value in values] == [True] * 3
    for value, before in zip(values, sent, strict=True):
        for name in ("a", "b", "own", "free"):
            assert getattr(value, name, None) == getattr(before, name, None)
        if isinstance(value, cell["Base"]):
            assert value.hidden() == before.hidden()
        assert hasattr(value, "__dict__") == hasattr(before, "__dict__")


def test_class_that_travels_with_each_of_many_elements_is_named_once(
    queue: dq.QueuePool, cell: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million objects took twenty minutes to send, without a word."""
    monkeypatch.setattr("dqlab.runs.submit.elements.WORTH", 5)
    rows = [cell["Data"](at) for at in range(5)]

    with pytest.warns(
        ClassTravels, match=r"the 5 elements are objects of Data, a class of this notebook.*vars\("
    ) as of:
        run = queue.map(cell["same"], rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        queue.map(cell["same"], rows)
        for few_or_others in (rows[:4], [3] * 5, [cell["Colour"].RED] * 5, [queue.name] * 5):
            queue.map(cell["same"], few_or_others)

    assert [of[0].filename, len(of)] == [__file__, 1]
    assert [row.a for row in run.results(timeout=60)] == [0, 1, 2, 3, 4]
