"""Small mistakes whose answer left the reader alone: each names what is right, or what to type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dqlab as dq
from dqlab.cli.command import main
from dqlab.config import seconds
from dqlab.errors import BadOption


@pytest.mark.parametrize("value", [-1, -0.5, "-1", "-5s", "-1h30m"])
def test_a_duration_below_zero_is_named_as_such(value: Any) -> None:
    """It was "not a duration"."""
    with pytest.raises(BadOption, match="must be zero or more"):
        seconds(value, name="timeout")


@pytest.mark.parametrize("call", [lambda: dq.connect(n=0), lambda: main(["up", "-n", "0"])])
def test_a_number_of_processes_that_is_none_says_what_it_must_be(
    call: Callable[[], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """ "n=0: is a number of processes" read as if 0 were one."""
    try:
        assert call() != 0
        said = capsys.readouterr().err
    except BadOption as error:
        said = str(error)
    assert "n=0: must be a number of processes, at least 1" in said


def test_options_that_no_queue_can_have_are_refused_for_an_open_one_too(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """The advice was to close it, and to write the same line again."""
    with pytest.raises(BadOption, match="n_queues=0: must be 1 to 16"):
        lab.queue(queue.name, n_queues=0)


def test_consumers_say_what_they_must_be(queue: dq.QueuePool) -> None:
    with pytest.raises(BadOption, match="consumers=-1: must be 'auto' or None"):
        queue.map(abs, [1], consumers=-1)  # type: ignore[arg-type]
