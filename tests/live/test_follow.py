"""One run being watched, step by step."""

from __future__ import annotations

from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

from dqlab import numbers
from dqlab.errors import ActorGone, CallTimeout, LabClosed, RunNotFound, SchedulerGone
from dqlab.live.follow import GIVE_UP_AFTER, REFUSED, LiveRun
from dqlab.live.views import Command, Face, Press
from dqlab.stats import RunState, RunStats
from tests.live.drawn import html_of, screen_of

GONE = SchedulerGone(address="tcp://nowhere", reason="closed")
SLOW = CallTimeout(name="parse-invoices", call="stats", seconds=1)


@pytest.fixture
def live(source: Any, canvas: Any, clock: Any, commands: SimpleQueue[Press]) -> LiveRun:
    return LiveRun(source, canvas, commands=commands, clock=clock)


def test_view_that_did_not_change_is_not_drawn_again(live: LiveRun, canvas: Any) -> None:
    """An idle run costs the front end nothing."""
    assert [live.tick() for _ in range(3)] == [True, True, True]

    assert len(canvas.drawn) == 1


def test_every_change_is_drawn(live: LiveRun, source: Any, canvas: Any, running: RunStats) -> None:
    """Within one step of being known."""
    live.tick()
    source.answer = replace(running, rate=30.0)
    live.look_again()
    live.tick()

    assert [view.figures[2].second for view in canvas.drawn] == ["23.9 documents/s", "30.0 documents/s"]


def test_finished_run_is_drawn_once_more_for_good(live: LiveRun, source: Any, canvas: Any, done: RunStats) -> None:
    """The last view is the one that the notebook keeps."""
    live.tick()
    source.answer = done
    live.look_again()

    assert live.tick() is False
    assert canvas.last.chip == "Done, 212 dead"


def test_incomplete_run_ends_when_all_that_was_submitted_is_settled(
    live: LiveRun, source: Any, canvas: Any, done: RunStats
) -> None:
    """Nothing moves any more until the documents are mapped again."""
    source.answer = replace(done, state=RunState.INCOMPLETE)

    assert live.tick() is False
    assert canvas.last.face is Face.INCOMPLETE


def test_every_step_of_a_run_at_rest_shows_that_the_view_lives(
    live: LiveRun, source: Any, canvas: Any, clock: Any, done: RunStats
) -> None:
    """It has nothing to draw, and a front end cannot know that nobody would act on a press."""
    canvas.keeps, source.answer = True, done
    for _ in range(5):
        live.tick()
        clock.now += 3

    assert canvas.beats == 5


@pytest.mark.parametrize("error", [GONE, SLOW, ActorGone(name="q", reason="its worker died")])
def test_short_silence_is_not_worth_a_word(
    live: LiveRun, source: Any, canvas: Any, clock: Any, error: Exception
) -> None:
    """A takeover takes less than 3 s; a warning that comes and goes frightens for nothing."""
    live.tick()
    source.answer = error
    clock.now += 2.9
    assert live.tick()
    assert canvas.drawn[-1].face is Face.RUNNING

    clock.now += 0.2
    assert live.tick()

    assert canvas.drawn[-1].face is Face.NO_ANSWER
    assert canvas.drawn[-1].live == "as of 14:22:07"


def test_silence_is_asked_less_and_less_often(live: LiveRun, source: Any, clock: Any) -> None:
    """A scheduler that is gone is not hammered by every open notebook."""
    source.answer = GONE
    for _ in range(240):
        clock.now += 0.25
        live.tick()

    assert source.asked == 6  # after 0, 1, 3, 7, 15 and 31 s


def test_a_poll_that_waits_leaves_no_count_that_stands_still(
    live: LiveRun, source: Any, canvas: Any, clock: Any
) -> None:
    """ "No answer for 13 s. Trying again in 3 s" stood still for six seconds, while a poll waited."""
    live.tick()
    answered = clock.wall()
    source.answer = SLOW
    for _ in range(80):
        clock.now += 0.25
        live.tick()

    texts = {view.notice.text for view in canvas.drawn if view.face is Face.NO_ANSWER}
    assert len(texts) == 1
    assert texts.pop().startswith(f"No answer since {numbers.clock(answered)}.")


def test_answer_after_silence_clears_it(live: LiveRun, source: Any, canvas: Any, clock: Any, running: RunStats) -> None:
    """A laptop that slept comes back by itself."""
    live.tick()
    source.answer = GONE
    clock.now += 10
    live.tick()
    source.answer = replace(running, at=running.at + 20)
    clock.now += 10
    live.tick()

    assert [view.face for view in canvas.drawn] == [Face.RUNNING, Face.NO_ANSWER, Face.RUNNING]


def test_retry_now_asks_at_once(live: LiveRun, source: Any, clock: Any, commands: SimpleQueue[Press]) -> None:
    """Who has just plugged the cable back in does not wait for the next try."""
    source.answer = GONE
    live.tick()
    live.tick()
    assert source.asked == 1

    commands.put(Press(Command.ASK))
    live.tick()

    assert source.asked == 2


def test_endless_silence_ends_the_view(live: LiveRun, source: Any, canvas: Any, clock: Any) -> None:
    """A notebook left open over the weekend does not ask a dead scheduler for ever."""
    live.tick()
    source.answer = GONE
    clock.now += GIVE_UP_AFTER + 1

    assert live.tick() is False
    assert canvas.last.face is Face.NO_ANSWER
    assert "stopped polling" in canvas.last.notice.text, "it was: Trying again now"
    assert canvas.last.buttons == ()


def test_dropped_run_ends_the_view_with_the_reason(live: LiveRun, source: Any, canvas: Any) -> None:
    """It will not answer later either."""
    live.tick()
    source.answer = RunNotFound(run="parse-invoices", hint="", known="none")
    live.look_again()

    assert live.tick() is False
    assert "no run named 'parse-invoices'" in canvas.last.notice.text
    assert canvas.last.figures[0].value == "315,894"
    assert (canvas.last.face, canvas.last.chip) == (Face.GONE, "Gone"), "it was: No answer"
    kept = html_of(canvas.last)
    assert "%dq" not in kept, "each of these lines raises RunNotFound"
    assert " left after " not in kept
    assert "%dq" not in screen_of(canvas.last)


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_whose_cluster_had_no_store_is_gone_with_it(live: LiveRun, source: Any, canvas: Any, kept: bool) -> None:
    """Its last picture had lines to type, each of which raised."""
    live.tick()
    source.answer = LabClosed(lab="papers", what="it", left="Its cluster is gone.", kept=kept)
    live.look_again()

    assert live.tick() is False
    assert "Its cluster is gone" in canvas.last.notice.text
    assert canvas.last.face is (Face.NO_ANSWER if kept else Face.GONE)
    assert ("%dq attach" in html_of(canvas.last)) is kept


def test_run_that_is_dropped_before_the_first_answer_has_no_numbers(live: LiveRun, source: Any, canvas: Any) -> None:
    """There is nothing to keep."""
    source.answer = RunNotFound(run="parse-invoices", hint="", known="none")

    assert live.tick() is False
    assert canvas.last.figures == ()
    assert canvas.last.chip == "Gone"


def test_buttons_act_in_the_step_and_not_where_they_are_pressed(
    live: LiveRun, source: Any, commands: SimpleQueue[Press]
) -> None:
    """A press arrives in any thread; the run is touched in one."""
    for command in (Command.PAUSE, Command.RESUME, Command.CANCEL):
        commands.put(Press(command))
    assert source.done == []

    live.tick()

    assert source.done == ["pause", "resume", "cancel"]


def test_refused_command_is_shown_until_the_next(
    live: LiveRun, source: Any, canvas: Any, commands: SimpleQueue[Press]
) -> None:
    """A button that silently does nothing is pressed again, harder."""
    source.refusal = SLOW
    commands.put(Press(Command.PAUSE))
    live.tick()
    assert canvas.drawn[-1].notice.text.startswith("Pause failed: 'parse-invoices' did not answer stats()")

    source.refusal = None
    commands.put(Press(Command.PAUSE))
    live.tick()

    assert canvas.drawn[-1].notice.text == ""


def test_refused_command_hides_what_is_true_for_a_minute(
    live: LiveRun, source: Any, canvas: Any, clock: Any, commands: SimpleQueue[Press], running: RunStats
) -> None:
    """Then it is no news, and what needs attention comes back."""
    source.answer = replace(running, why="its store takes nothing")
    source.refusal = SLOW
    commands.put(Press(Command.PAUSE))
    live.tick()
    assert canvas.drawn[-1].notice.text.startswith("Pause failed")

    clock.now += REFUSED
    live.tick()

    assert canvas.drawn[-1].notice.text == "its store takes nothing"


def test_closed_canvas_ends_the_view_without_a_question(live: LiveRun, source: Any, canvas: Any) -> None:
    """Nobody looks."""
    canvas.gone = True

    assert live.tick() is False
    assert source.asked == 0


def test_left_view_says_where_the_run_is_shown_now(live: LiveRun, canvas: Any) -> None:
    """Numbers that stand still look like a run that stands still."""
    live.tick()
    live.leave()

    assert live.tick() is False
    assert (canvas.last.name, canvas.last.compact) == ("parse-invoices", ("its live view is in a later cell",))
    assert canvas.last.figures == ()


def test_end_that_was_drawn_is_told(source: Any, canvas: Any, clock: Any, running: RunStats, done: RunStats) -> None:
    """Who waits for the run need not draw it again."""
    ends: list[RunStats] = []
    live = LiveRun(source, canvas, clock=clock, on_end=ends.append)
    live.tick()
    source.answer = done
    live.look_again()
    live.tick()

    assert ends == [done]
