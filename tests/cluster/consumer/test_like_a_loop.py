"""A chunk ends as a plain loop over its messages would, whatever functions do and whoever takes messages away."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.running.execution import Origin, Work, run_calls
from dqlab.cluster.transport.sealed import open_value, seal_value
from dqlab.failures.failure import Failure
from dqlab.frame import Frame, Kind, Outcome, Settlement
from tests.kit.sampled import examples

RUN, FIRST, LIMIT = b"r" * 16, 100, 4096
LETHAL = (ValueError, SystemExit, KeyboardInterrupt, RecursionError, StopIteration, IndexError)
ACTS = st.one_of(
    st.sampled_from(["answer", "buffer", "large", "lock", "torn", *LETHAL]),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("give back"), st.integers(1, 4)),
    st.tuples(st.just("collect"), st.integers(1, 5)),
)


@dataclass
class Play:
    """What messages do while they run, and what they have left."""

    acts: list[Any]
    chunk: Chunk | None = None
    begun: list[int] = field(default_factory=list)
    buffer: list[int] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)

    def run(self, value: list[int]) -> Any:
        """Do what the message of this number does; a message that arrives changed has shared its value."""
        (index,) = value
        value.append(index)
        self.begun.append(index)
        self.buffer.append(index)
        act = self.acts[index]
        if isinstance(act, tuple):
            self._of_the_event_loop(*act)
        elif not isinstance(act, str):
            raise act(f"about {index}")
        return {"buffer": self.buffer, "large": bytes(LIMIT), "lock": threading.Lock()}.get(str(act), value)

    def _of_the_event_loop(self, act: str, n: int) -> None:
        """Do at this moment what the event loop may do at any."""
        if self.chunk is None:
            return
        if act == "cancel":
            self.chunk.cancel([(FIRST + n, FIRST + n + 1)])
        elif act == "give back":
            self.keep(self.chunk.give_back(n))
        else:
            self.keep(self.chunk.collect(n))
            self.chunk.confirm()

    def keep(self, settlement: bytes | memoryview | None) -> None:
        """Note a settlement that was sent."""
        if settlement is not None:
            self.sent.append(bytes(settlement))


def expected(acts: list[Any]) -> tuple[list[int], dict[int, Any]]:
    """What a loop over the messages runs, and says about each of them."""
    said: dict[int, Any] = {}
    begun, buffer, cancelled, stop = list[int](), list[int](), set[int](), len(acts)
    for index, act in enumerate(acts):
        if index >= stop:
            break
        if index in cancelled:
            said[index] = Outcome.RETURN
            continue
        if act == "torn":
            said[index] = "UnpicklingError"
            continue
        begun.append(index)
        buffer.append(index)
        if isinstance(act, type):
            said[index] = act.__name__
            continue
        if isinstance(act, tuple) and act[0] == "cancel":
            cancelled.add(act[1])
        elif isinstance(act, tuple) and act[0] == "give back":
            left = max(index + 1, stop - act[1])
            said |= dict.fromkeys(range(left, stop), Outcome.RETURN)
            stop = left
        answers = {"buffer": list(buffer), "large": "ResultTooLarge", "lock": "ResultRefused"}
        said[index] = answers.get(str(act), [index, index])
    return begun, said


@given(st.lists(ACTS, min_size=1, max_size=30))
@settings(max_examples=examples(300), deadline=None)
def test_each_message_has_the_one_outcome_of_a_plain_loop(acts: list[Any]) -> None:
    """Results, exceptions, cancels, messages given back and settlements, in any order, one message after another."""
    payloads = [pickle.dumps([at])[:-2] if act == "torn" else seal_value([at]) for at, act in enumerate(acts)]
    frame = Frame.decode(Frame.encode(payloads, kind=Kind.ELEMENT, run=RUN, ordinal=0))
    play = Play(acts)
    play.chunk = chunk = Chunk(Lease(0, 1, 1, 60.0), [FIRST], [frame])

    run_calls(chunk, Work(play.run), Origin("c", "w", LIMIT))
    play.keep(chunk.collect())

    said: dict[int, Any] = {}
    for blob in play.sent:
        settlement = Settlement.decode(blob)
        for id, outcome, entry in zip(settlement.ids(), settlement.outcomes, settlement.entries(), strict=True):
            assert id - FIRST not in said
            said[id - FIRST] = (
                Outcome.RETURN
                if outcome == Outcome.RETURN
                else open_value(entry)
                if outcome == Outcome.ACK
                else Failure.from_bytes(entry).error.rpartition(".")[2]
            )
    assert (play.begun, said) == expected(acts)
    assert (chunk.finished, chunk.running, len(chunk.ended)) == (True, None, len(acts))
