"""What a slot's process reads ahead: only of messages that are still to come, and of one run."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.consumer.process import child
from dqlab.cluster.consumer.process.child import Turns
from dqlab.cluster.consumer.process.pipes import TURN, Records, Say, record
from dqlab.cluster.transport.wire import pack
from dqlab.documents import ahead
from dqlab.documents.ahead import ReadAhead, taken
from dqlab.documents.document import sealed_document
from dqlab.frame import Outcome
from dqlab.platforms import unnamed_file
from tests.kit.waiting import until

RUN, OTHER = b"r" * 16, b"o" * 16


def document(n: int) -> dq.Document:
    return dq.Document(f"{n}.txt", "", f"http://127.0.0.1:9/{n}.txt", size=8)


class Slot:
    """The slot's end of the pipes of a process that runs here."""

    def __init__(self) -> None:
        self._turns_read, self._turns = os.pipe()
        orders, self._orders = os.pipe()
        self._outcomes, outcomes = os.pipe()
        os.set_blocking(self._turns_read, False)
        os.set_blocking(self._outcomes, False)
        words: Any = None
        printed = unnamed_file("test-printed")
        self._ends = (self._turns_read, self._turns, orders, self._orders, self._outcomes, outcomes, printed)
        self.process = Turns(self._turns_read, orders, outcomes, printed, words)
        self._records, self._turn = Records(), 0

    def announce(self, coming: list[int] | None, run: bytes = RUN) -> None:
        payloads = [pickle.dumps(document(n), 5) for n in coming or ()]
        os.write(self._orders, record(Say.COMING, body=pack({"run": run, "asks": coming is None}, *payloads)))

    def give(self, n: int) -> int:
        self._turn += 1
        os.write(self._orders, record(Say.MESSAGE, self._turn, pickle.dumps(document(n), 5)))
        os.write(self._turns, TURN.pack(self._turn))
        return self._turn

    def take_back(self) -> None:
        os.read(self._turns_read, TURN.size)

    def begin(self) -> dq.Document:
        """Have the process take a message and begin it, as `run_calls` does."""
        turn = self.process.popleft()
        found = sealed_document(self.process[turn])
        assert found is not None
        self.process.read_on(found)
        return found

    def end(self) -> None:
        self.process.append((self._turn, Outcome.ACK, b"", None))

    def said(self) -> list[int]:
        self._records.feed(os.read(self._outcomes, 1 << 16))
        return [each.say for each in self._records.take()]

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have documents read without a server; returns the keys of those that were."""
    keys: list[str] = []
    monkeypatch.setattr(ahead, "_here", threading.local())

    def reading(run: bytes, upcoming: Callable[[int], list[bytes]], first: dq.Document) -> ReadAhead:
        def read_one(reference: Any) -> bytes:
            keys.append(reference.key)
            return bytes(reference.key, "ascii")

        return ReadAhead.of_thread(run, lambda most: [sealed_document(each) for each in upcoming(most)], read_one)  # type: ignore[misc]

    monkeypatch.setattr(child, "reading_ahead", reading)
    return keys


@pytest.fixture
def slot() -> Iterator[Slot]:
    made = Slot()
    yield made
    made.process.rest()
    made.close()


def test_what_is_announced_is_read_once_it_was_asked_for(slot: Slot, read: list[str]) -> None:
    """A run of local documents asks for nothing, and its slot announces nothing."""
    slot.give(0)
    slot.begin()
    assert slot.said() == [Say.WANTS]
    slot.end()
    slot.announce([2, 3])
    slot.give(1)
    slot.begin()

    until(lambda: sorted(read) == ["2.txt", "3.txt"])
    slot.end()
    assert slot.said() == [Say.OUTCOME] * 2
    slot.announce([3, 4])
    slot.give(2)
    found = slot.begin()
    assert taken(found) == b"2.txt"
    assert taken(found) is None, "it is there once"


def test_nothing_of_one_run_is_given_to_another(slot: Slot, read: list[str]) -> None:
    """Both may have the same function and the same documents: what is read for the later one is what is there then."""
    slot.give(0)
    slot.begin()
    slot.end()
    slot.announce([2, 3])
    slot.give(1)
    slot.begin()
    until(lambda: len(read) == 2)
    slot.end()

    slot.announce(None, OTHER)
    slot.give(2)
    found = slot.begin()

    assert taken(found) is None
    assert slot.said().count(Say.WANTS) == 2, "the other run asks for itself"
