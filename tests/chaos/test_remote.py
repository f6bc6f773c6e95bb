"""Processes that are told what to do: what hangs is found and shown, what dies and what is refused is said."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dqlab.errors import QueueClosed
from tests.chaos import stacks, truth
from tests.chaos.remote import Died, Hung, Refused, Remote
from tests.chaos.serving import serve


class Toy:
    """What the other process can do."""

    def add(self, x: int, y: int) -> int:
        """Answer."""
        os.write(1, b"this is not an answer\n")
        return x + y

    def hang_for_ever(self) -> None:
        """Never answer."""
        threading.Event().wait()

    def refuse(self) -> None:
        """Raise one of dqlab's own errors."""
        raise QueueClosed(queue="q")

    def stumble(self) -> None:
        """Raise what nobody thought of."""
        raise KeyError("x")

    def run(self, key: str) -> None:
        """Note a call that ends well, and one that does not end."""
        truth.began(key)
        truth.ended(key, well=True)
        truth.began(key)


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Remote]:
    remote = Remote("tests.chaos.test_remote", "toy", tmp_path)
    yield remote
    remote.kill()


@pytest.mark.cluster
def test_answers_belong_to_what_was_asked(toy: Remote) -> None:
    calls = [toy.start("add", x=1, y=n) for n in range(20)]
    assert [call.answer() for call in calls] == [1 + n for n in range(20)]


@pytest.mark.cluster
def test_what_hangs_is_found_and_shows_where_it_stands(toy: Remote, tmp_path: Path) -> None:
    toy.ask("add", x=1, y=1)
    with pytest.raises(Hung, match=r"hang_for_ever.*toy"):
        toy.ask("hang_for_ever", deadline=0.1)
    os.kill(toy.process.pid, signal.SIGSTOP)
    assert "in hang_for_ever" in stacks.gather(tmp_path, [psutil.Process(toy.process.pid)])


@pytest.mark.cluster
def test_errors_come_back_and_say_whether_they_are_ours(toy: Remote) -> None:
    with pytest.raises(Refused, match="QueueClosed") as ours:
        toy.ask("refuse")
    with pytest.raises(Refused, match="KeyError") as other:
        toy.ask("stumble")
    assert (ours.value.typed, other.value.typed) == (True, False)


@pytest.mark.cluster
def test_what_was_asked_of_a_killed_process_is_said_to_have_died_with_it(toy: Remote) -> None:
    call = toy.start("hang_for_ever")
    toy.kill()
    with pytest.raises(Died, match="toy"):
        call.answer()
    with pytest.raises(Died, match="toy"):
        toy.ask("add", x=1, y=1)


@pytest.mark.cluster
def test_calls_are_read_as_they_were_noted(toy: Remote, tmp_path: Path) -> None:
    toy.ask("run", key="a:1")
    toy.kill()
    first, second = truth.read_executions(tmp_path)
    assert first.pid == second.pid == toy.process.pid
    assert first.began <= (first.ended or 0) <= second.began
    assert (first.well, second.ended) == (True, None)


if __name__ == "__main__":
    serve(lambda op: getattr(Toy(), op), sys.exit, ())
