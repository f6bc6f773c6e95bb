"""Answers that are paid once: across failures, refusals, retries with other code, and never for another question."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.consumer.running.in_functions import _key
from dqlab.errors import BadOption


class Refused(Exception):
    status_code = 429


class Model:
    """A paid call that notes each question in a file, since consumers are other processes."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "questions"
        self.file.touch()

    @property
    def asked(self) -> list[str]:
        return self.file.read_text().split()

    def ask(self) -> Callable[[str], str]:
        file = str(self.file)

        def ask(question: str) -> str:
            with Path(file).open("a") as asked:
                asked.write(question + "\n")
            return question.upper()

        return ask


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model(tmp_path)


@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("where", ["thread", "coroutine", "process"])
def test_a_mended_parser_does_not_pay_for_its_answers_again(
    lab: dq.Lab, model: Model, where: str, batch: int | None
) -> None:
    """Neither do retries after its failures; in a batch each document has its own answer."""
    ask = model.ask()

    async def asking(question: str) -> str:
        return ask(question)

    async def wrong_async(question: str) -> Any:
        return {}[await dq.once(asking, question)]

    async def right_async(question: str) -> str:
        return await dq.once(asking, question)

    def wrong(question: str) -> Any:
        raise RuntimeError(dq.once(ask, question))

    def right(question: str) -> str:
        return dq.once(ask, question)

    bad, good = (wrong_async, right_async) if where == "coroutine" else (wrong, right)
    if batch and where == "coroutine":

        async def bad(questions: list[str]) -> Any:
            raise RuntimeError([await dq.once(asking, each) for each in questions])

        async def good(questions: list[str]) -> list[str]:
            return [await dq.once(asking, each) for each in questions]

    elif batch:

        def bad(questions: list[str]) -> Any:
            raise RuntimeError([dq.once(ask, each) for each in questions])

        def good(questions: list[str]) -> list[str]:
            return [dq.once(ask, each) for each in questions]

    questions = [f"q{number}" for number in range(12)]
    options: dict[str, Any] = {"executor": "process"} if where == "process" else {}
    run = lab.map(bad, questions, retry=dq.Retry(1, backoff=0.01), batch=batch, **options).wait(timeout=60)
    assert run.counts["dead"] == 12
    run.retry(fn=good)

    assert list(run.results(timeout=60)) == [each.upper() for each in questions]
    assert sorted(model.asked) == sorted(questions)


def test_what_was_paid_before_a_process_died_is_known(lab: dq.Lab, model: Model, tmp_path: Path) -> None:
    """What it has spent counts, and its answers are not asked for again."""
    ask, directory = model.ask(), tmp_path

    def crash(question: str) -> str:
        answer = dq.once(ask, question)
        if not (seen := directory / f"seen-{question}").exists():
            dq.spend(eur=1)
            seen.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    questions = [f"q{number}" for number in range(4)]
    run = lab.map(crash, questions, executor="process", budget="9 eur", retry=dq.Retry(2, backoff=0.01))

    assert list(run.results(timeout=60)) == [each.upper() for each in questions]
    assert sorted(model.asked) == questions
    assert run.spend().spent["eur"] == 4


def test_a_run_that_is_dropped_frees_its_answers(lab: dq.Lab, model: Model) -> None:
    """They belong to its documents: a run of the same name asks again."""
    ask = model.ask()

    def wrong(question: str) -> Any:
        raise RuntimeError(dq.once(ask, question))

    for _ in range(2):
        lab.map(wrong, ["q"], name="dropped", retry=1).wait(timeout=60).drop()

    assert model.asked == ["q", "q"]


def test_a_refusal_between_two_calls_costs_only_the_second(lab: dq.Lab, model: Model, tmp_path: Path) -> None:
    """A refusal is no failure, and leaves no record of one."""
    ask, directory = model.ask(), tmp_path

    async def two(number: int) -> str:
        first = dq.once(ask, f"q{number}")
        if not (seen := directory / f"seen-{number}").exists():
            seen.touch()
            raise Refused
        return first

    assert list(lab.map(two, range(8)).results(timeout=60)) == [f"Q{number}" for number in range(8)]
    assert len(model.asked) == 8


@pytest.mark.parametrize(
    ("argument", "said"),
    [(object(), "compare the arguments"), ("x" * 300_000, "262,144 bytes"), ("in a batch", "with the document")],
)
def test_what_cannot_be_kept_fails_its_document_with_the_reason(lab: dq.Lab, argument: Any, said: str) -> None:
    """It would be paid again in silence."""

    def echo(value: Any) -> Any:
        return value

    def call(number: int) -> Any:
        return dq.once(echo, argument)

    def calls(numbers: list[int]) -> Any:
        return [dq.once(echo, argument) for _ in numbers]

    batched = argument == "in a batch"
    run = lab.map(calls if batched else call, [1, 2], batch=2 if batched else None).wait(timeout=60)

    letter = run.failures()[0]
    assert said in letter.message
    assert letter.deliveries == 1


def test_once_keeps_answers_up_to_the_size_that_it_is_told(lab: dq.Lab, tmp_path: Path) -> None:
    @dq.once(max_bytes="1 MB")
    def answer(size: int) -> str:
        with (tmp_path / str(size)).open("a") as asked:
            asked.write("x")
        return "x" * size

    def call(size: int) -> int:
        length = len(answer(size))
        if (tmp_path / str(size)).stat().st_size == 1 and not (seen := tmp_path / f"seen-{size}").exists():
            seen.touch()
            raise ValueError
        return length

    run = lab.map(call, [900_000, 1_100_000], retry=dq.Retry(1, backoff=0.01)).wait(timeout=60)

    assert run.stats().counts.acked == 1
    assert (tmp_path / "900000").read_text() == "x"
    assert "1,000,000 bytes" in run.failures()[0].message


@pytest.mark.parametrize("options", [{"max_bytes": "much"}, {"max_bytes": 0}, {"most": 1}])
def test_once_refuses_a_size_that_is_none(options: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match=next(iter(options))):
        dq.once(**options)


def test_arguments_that_cannot_be_compared_are_refused() -> None:
    """Another question would get the answer of this one; a list that contains itself can be compared."""
    with pytest.raises(dq.Reject, match="compare the arguments"):
        _key(rate, (threading.Lock(),), {})
    recursive: list[Any] = []
    recursive.append(recursive)
    assert _key(rate, (recursive,), {}) == _key(rate, (recursive,), {}) != _key(rate, ([],), {})


RATE = 3


def helper(text: str) -> str:
    return text * RATE


def rate(text: str) -> str:
    return helper(text)


def edited(source: str) -> Any:
    """A function of this module, as a notebook would redefine it."""
    names: dict[str, Any] = {"RATE": RATE, "helper": helper, "__name__": __name__}
    exec(source, names)
    return names["rate"]


def test_an_answer_belongs_to_its_question_and_to_the_code_that_gave_it() -> None:
    """Another argument, an edited function or helper, or another constant is another call; a comment is not."""
    same = _key(rate, ("a",), {})

    assert _key(rate, ("a",), {}) == same
    assert _key(edited("# a comment\n\ndef rate(text):\n    return helper(text)"), ("a",), {}) == same
    others = [
        _key(rate, ("b",), {}),
        _key(rate, ("a",), {"k": 1}),
        _key(edited("def rate(text):\n    return helper(text) + '!'"), ("a",), {}),
        _key(edited("def rate(text):\n    return helper(text)\ndef helper(text):\n    return text * 4"), ("a",), {}),
        _key(
            edited("RATE = 4\ndef helper(text):\n    return text * RATE\ndef rate(text):\n    return helper(text)"),
            ("a",),
            {},
        ),
    ]
    assert len({same, *others}) == 1 + len(others)


def test_outside_a_message_a_call_is_a_call(model: Model) -> None:
    """As in the notebook, where the function is tried first."""
    ask = dq.once(model.ask())

    assert [ask("q"), ask("q")] == ["Q", "Q"]
    assert model.asked == ["q", "q"]
