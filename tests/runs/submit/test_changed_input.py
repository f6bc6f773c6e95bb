"""Who mapped a list may change it on the next line, while a thread still reads it."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict, UserList, deque
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest

import dqlab as dq
from dqlab.errors import SubmissionIncomplete, UsageError
from dqlab.runs.submit import mapping


def same(x: object) -> object:
    return x


@pytest.fixture
def goes_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What the thread that reads an input waits for before it takes the first element."""
    event, real = threading.Event(), mapping.make_sealer

    def make_sealer() -> Any:
        event.wait(30)
        return real()

    monkeypatch.setattr(mapping, "make_sealer", make_sealer)
    yield event
    event.set()


def of_dict(view: str, kind: type[dict[int, int]] = dict) -> tuple[Any, Callable[[], object]]:
    base = kind((x, x) for x in range(50))
    return getattr(base, view)(), base.clear


def clearable(kind: Any) -> tuple[Any, Callable[[], object]]:
    batch = kind(range(50))
    return batch, batch.clear


def numbers() -> tuple[Any, Callable[[], object]]:
    batch = array("q", range(50))
    return batch, lambda: batch.__delitem__(slice(None))


def column(labels: list[str] | None) -> tuple[Any, Callable[[], object]]:
    batch = pd.Series(range(50), index=labels)

    def clear() -> None:
        for label in list(batch.index):
            del batch[label]

    return batch, clear


BUILTIN = {
    "list": lambda: clearable(list),
    "deque": lambda: clearable(deque),
    "bytearray": lambda: clearable(bytearray),
    "array": numbers,
    "keys": lambda: of_dict("keys"),
    "values": lambda: of_dict("values"),
    "items": lambda: of_dict("items"),
    "ordered": lambda: of_dict("values", OrderedDict),
    "column": lambda: column(None),
    "labelled column": lambda: column([f"row {x}" for x in range(50)]),
}


@pytest.mark.parametrize("make", BUILTIN.values(), ids=BUILTIN.keys())
def test_a_container_that_is_emptied_after_it_was_mapped_is_mapped_as_it_was(
    queue: dq.QueuePool, goes_on: threading.Event, make: Callable[[], tuple[Any, Callable[[], object]]]
) -> None:
    """A batch that is filled again and again lost most of its documents, and nothing said so."""
    batch, clear = make()
    run = queue.map(same, batch)
    clear()
    assert len(batch) == 0
    goes_on.set()

    values = list(run.results(timeout=30))
    assert [value[0] if isinstance(value, tuple) else value for value in values] == list(range(50))


class Own(list[int]):
    """A list of somebody's own, which may do anything when it is iterated."""


class Sized:
    """Elements with a length, and no `Sequence`."""

    def __init__(self, elements: Any) -> None:
        self.elements = list(elements)

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)

    def append(self, element: int) -> None:
        self.elements.append(element)

    def clear(self) -> None:
        self.elements.clear()


@pytest.mark.parametrize("kind", [Own, UserList, Sized])
def test_an_input_that_shrinks_before_it_is_read_has_broken(
    queue: dq.QueuePool, goes_on: threading.Event, kind: Any
) -> None:
    """The results that there are look complete."""
    batch = kind(range(50))
    run = queue.map(same, batch)
    batch.clear()
    batch.append(7)
    goes_on.set()

    said = r"had 50 elements when it was mapped and gave 1 .*list\(batch\)"
    with pytest.raises(SubmissionIncomplete, match=said) as caught:
        run.results(timeout=30)
    assert isinstance(caught.value.__cause__, UsageError)
    assert list(run.results(errors="skip", timeout=30)) == [7]


@pytest.mark.parametrize("kind", [Own, UserList, Sized])
def test_an_input_that_grows_before_it_is_read_has_broken(
    queue: dq.QueuePool, goes_on: threading.Event, kind: Any
) -> None:
    """What was appended later belongs to another batch, and may be mapped there too."""
    batch = kind(range(5))
    run = queue.map(same, batch)
    batch.append(5)
    goes_on.set()

    with pytest.raises(SubmissionIncomplete, match=r"had 5 elements when it was mapped and gave (more|6) "):
        run.results(timeout=30)
    assert list(run.results(errors="skip", timeout=30))[:5] == list(range(5))


class Estimate(Sized):
    def __len__(self) -> int:
        return 100


class Drained(Sized):
    def __iter__(self) -> Iterator[Any]:
        while self.elements:
            yield self.elements.pop(0)


class Wordless(Sized):
    def __len__(self) -> int:
        raise SystemExit


@pytest.mark.parametrize("kind", [Estimate, Drained, Wordless])
def test_a_length_that_is_not_the_number_of_elements_is_no_change(queue: dq.QueuePool, kind: Any) -> None:
    """Bars of progress have an estimate, and what is emptied as it is read has what is left."""
    assert list(queue.map(same, kind(range(5))).results(timeout=30)) == list(range(5))
