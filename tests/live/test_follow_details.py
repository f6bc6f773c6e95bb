"""A run that says more than its statistics, a lab and a queue: being watched, step by step."""

from __future__ import annotations

import threading
from dataclasses import replace
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.errors import LabClosed
from dqlab.live.follow import SAID, LiveQueues, LiveRun
from dqlab.live.views import Command, Face, Press
from dqlab.notebook import running_cell
from dqlab.numbers import UNKNOWN
from dqlab.stats import RunState, RunStats, Snapshot, StopReason
from tests.live.conftest import CODE, SLOW
from tests.live.test_run_picture import stuck


@pytest.fixture
def live(detailed: Any, canvas: Any, clock: Any, commands: SimpleQueue[Press]) -> LiveRun:
    return LiveRun(detailed, canvas, commands=commands, clock=clock)


@pytest.fixture
def live_lab(hand_lab: Any, canvas: Any, clock: Any, commands: SimpleQueue[Press]) -> LiveQueues:
    return LiveQueues(hand_lab, canvas, commands=commands, clock=clock)


def step(live: Any) -> bool:
    """One step, and the end of what it began."""
    alive: bool = live.tick()
    live.obeying.join()
    return alive


def test_run_with_details_shows_needs_chart_consumers_and_code(live: LiveRun, canvas: Any) -> None:
    """All that is below the figures comes with the first picture."""
    live.tick()

    details = canvas.drawn[0].details
    assert [need.subject for need in details.needs] == ["61 dead", "c5", "128 dead"]
    assert details.chart.due == "14:34"
    assert details.consumers.rows[0].name == "c5"
    assert details.leases.title == "64 · oldest 4 min 12 s"
    assert details.code.text == CODE.rstrip()


def test_a_picture_is_made_of_one_snapshot_twice_a_second(live: LiveRun, detailed: Any, clock: Any) -> None:
    """Its numbers agree because nothing else is asked for them: 17 dead stood above "12 dead"."""
    for _ in range(8):
        live.tick()
        clock.now += 0.25

    assert (detailed.asked, detailed.looked) == (4, 2)


def test_a_press_is_followed_by_a_look(live: LiveRun, detailed: Any, commands: SimpleQueue[Press]) -> None:
    """What it did is shown at once, and not with the next picture."""
    live.tick()
    commands.put(Press(Command.PAUSE))
    live.tick()

    assert (detailed.done, detailed.asked) == (["pause"], 2)


def test_what_a_button_does_is_marked_without_a_cell(
    live: LiveRun, detailed: Any, commands: SimpleQueue[Press], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause by button stood in charts as done by the cell that ran last."""
    kernel = SimpleNamespace(displayhook=SimpleNamespace(prompt_count=7))
    monkeypatch.setattr("dqlab.notebook.shell", lambda: kernel)
    marked: list[int | None] = []
    monkeypatch.setattr(detailed, "pause", lambda: marked.append(running_cell()))
    live.tick()

    commands.put(Press(Command.PAUSE))
    live.tick()

    assert (marked, running_cell()) == ([None], 7)


def test_a_history_that_does_not_come_leaves_the_one_before(
    live: LiveRun, detailed: Any, canvas: Any, clock: Any
) -> None:
    """Half a picture does not come and go."""
    live.tick()
    chart = canvas.drawn[-1].details.chart
    detailed.series = SLOW
    detailed.answer = replace(detailed.answer, rate=30.0)
    clock.now += 1
    live.tick()

    assert canvas.drawn[-1].figures[2].second == "30.0 documents/s"
    assert canvas.drawn[-1].details.chart == chart


def test_retry_of_a_class_runs_beside_the_view_and_says_what_it_did(
    live: LiveRun, detailed: Any, canvas: Any, commands: SimpleQueue[Press]
) -> None:
    """It may take long; numbers go on meanwhile."""
    live.tick()
    commands.put(Press(Command.RETRY, target="7b0f44a1"))
    step(live)
    live.tick()

    assert detailed.done == ["retry 7b0f44a1"]
    assert canvas.drawn[-1].notice.text == "61 documents sent through again."


def test_a_press_is_told_for_a_while_then_what_is_true_now(
    live: LiveRun,
    detailed: Any,
    canvas: Any,
    commands: SimpleQueue[Press],
    running: RunStats,
    snapshot: Snapshot,
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ "tried again; c0 goes on with others" stayed, while the document was stuck on c1, and nothing replaced that."""
    monkeypatch.setattr(detailed, "replace", lambda target: ["#50"], raising=False)
    detailed.answer, focus = stuck(running, snapshot, 360.0)
    detailed.rest = focus.snapshot
    live.tick()
    commands.put(Press(Command.REPLACE, target="c0"))
    step(live)
    live.tick()
    assert canvas.drawn[-1].notice.text.startswith("#50: tried again; c0 takes other documents now.")

    clock.now += SAID
    live.tick()

    notice = canvas.drawn[-1].notice
    assert notice.text.startswith("Waiting for 1 document")
    assert [each.command for each in notice.buttons] == [Command.REPLACE, Command.GIVE_UP]


def test_what_is_under_way_is_told_until_it_is_done(
    live: LiveRun, detailed: Any, canvas: Any, commands: SimpleQueue[Press], clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who waits for it sees that it goes on."""
    goes_on = threading.Event()
    monkeypatch.setattr(detailed, "send_again", lambda *_, **__: goes_on.wait(10) and 61)
    live.tick()
    commands.put(Press(Command.RETRY))
    live.tick()
    clock.now += 10 * SAID
    live.tick()
    assert canvas.drawn[-1].notice.text == "Retry is under way."

    goes_on.set()
    live.obeying.join()
    live.tick()

    assert canvas.drawn[-1].notice.text == "61 documents sent through again."


def test_a_function_that_was_redefined_is_offered_first_and_retried_with(
    live: LiveRun, detailed: Any, canvas: Any, commands: SimpleQueue[Press], clock: Any
) -> None:
    """To retry with the code that has just failed is what somebody wants who has not edited anything."""
    live.tick()
    row = canvas.drawn[-1].failures[0]
    assert (row.retry, row.hint[:17]) == ("Retry 128 with v4", "edit the function")

    detailed.redefined = "parse as it is now"
    clock.now += 1
    step(live)

    row = canvas.drawn[-1].failures[0]
    assert row.retry == "Retry 128 with parse v5"
    assert row.hint == "parse as this notebook has it now; waiting documents keep their code"
    commands.put(Press(Command.RETRY, target="7b0f44a1"))
    step(live)
    assert detailed.done == ["retry 7b0f44a1 with parse as it is now"]


def test_of_many_dead_documents_a_hundred_are_retried_first_if_that_is_pressed(
    live: LiveRun, detailed: Any, canvas: Any, commands: SimpleQueue[Press]
) -> None:
    """Who has just edited a function does not know yet whether it is right."""
    detailed.redefined = "parse as it is now"
    live.tick()
    many, few = canvas.drawn[-1].failures[:2]
    assert (many.dead, many.first) == ("128", 100)
    assert (few.dead, few.first) == ("61", 0)

    commands.put(Press(Command.RETRY, target="7b0f44a1", n=100))
    step(live)
    live.tick()

    assert detailed.done == ["retry 7b0f44a1 first 100 with parse as it is now"]
    assert canvas.drawn[-1].notice.text == "100 documents sent through again. Waiting documents keep their code."


def test_a_retry_of_a_run_in_which_everything_failed_says_that_what_waits_gets_the_code_too(
    live: LiveRun, detailed: Any, canvas: Any, commands: SimpleQueue[Press], running: RunStats
) -> None:
    """It said that waiting documents keep their code, while all of it ran the new one."""
    detailed.redefined = "parse as it is now"
    detailed.answer = replace(running, state=RunState.STOPPED, stop=StopReason.ALL_FAILED, eta=None)
    live.tick()

    commands.put(Press(Command.RETRY))
    step(live)

    assert live.obeying.busy == "61 documents sent through again. Waiting documents run it too."


def test_a_view_that_its_page_keeps_offers_after_the_end_what_can_be_done(
    live: LiveRun, detailed: Any, canvas: Any, done: RunStats, commands: SimpleQueue[Press], clock: Any
) -> None:
    """Somebody who was away returns just then; the view was a table without a button."""
    canvas.keeps, detailed.answer = True, done
    assert live.tick()
    view = canvas.drawn[-1]
    assert [each.label for each in view.buttons] == ["Retry 212 with v4", "100 first", "Results"]
    assert (canvas.last, view.live) == (None, "ended 14:33:54")

    detailed.redefined = "parse as it is now"
    clock.now += 1
    assert live.tick()
    retry = canvas.drawn[-1].buttons[0]
    assert (retry.label, retry.primary) == ("Retry 212 with parse v5", True)
    commands.put(Press(Command.RETRY))
    step(live)
    assert detailed.done == ["retry all with parse as it is now"]


def test_a_view_of_a_rehearsed_run_offers_what_can_be_done(
    live: LiveRun, detailed: Any, canvas: Any, done: RunStats, commands: SimpleQueue[Press], clock: Any
) -> None:
    """It stays for whoever reads it, and its buttons are those of the kernel that has the input."""
    counts = replace(done.counts, acked=28, dead=2)
    tried = replace(done, state=RunState.INCOMPLETE, counts=counts, total=None, why="rehearsed 30 of 900 documents")
    canvas.is_read, detailed.answer, detailed.waits_for_go = True, tried, True
    assert live.tick()
    view = canvas.drawn[-1]
    assert view.chip == "Rehearsed"
    assert [each.label for each in view.buttons] == ["Go", "Fix & retry…", "Rehearse 100", "Cancel"]
    assert view.notice.text == "rehearsed 30 of 900 documents; the rest waits for Go, or run.go() in Python"
    assert view.ask.question == "Cancel the rest?"

    commands.put(Press(Command.REHEARSE, n=100))
    step(live)
    live.tick()
    assert canvas.drawn[-1].notice.text == "rehearsed 100 at 0.04"
    commands.put(Press(Command.GO))
    step(live)
    assert detailed.done == ["rehearse 100", "go"]

    detailed.waits_for_go, detailed.answer = False, replace(tried, at=tried.at + 9)
    clock.now += 20
    assert not live.tick()
    assert [each.label for each in canvas.last.buttons][-1] == "Results"
    assert "waits for its cell to be run again" in canvas.last.notice.text


def test_a_view_that_is_kept_goes_on_when_its_run_is_retried(
    live: LiveRun, detailed: Any, canvas: Any, done: RunStats, running: RunStats, clock: Any
) -> None:
    """The same view, in the same place."""
    canvas.keeps, detailed.answer = True, done
    live.tick()
    clock.now += 1
    live.tick()
    asked = detailed.asked
    clock.now += 1
    live.tick()
    assert detailed.asked == asked, "a run that rests is polled less often"

    detailed.answer = running
    clock.now += 1
    assert live.tick()
    assert canvas.drawn[-1].chip == "Running"


def test_a_view_that_no_page_keeps_any_more_is_drawn_for_good(
    live: LiveRun, detailed: Any, canvas: Any, done: RunStats, clock: Any
) -> None:
    """Its cell was run again, or the page is closed: a hundred of them must not poll all day."""
    canvas.keeps, detailed.answer = True, done
    assert live.tick()

    canvas.keeps = False
    clock.now += 2
    assert live.tick() is False
    assert canvas.last.chip == "Done, 212 dead"


def test_documents_of_a_class_come_when_they_are_asked_for(
    live: LiveRun, detailed: Any, canvas: Any, commands: SimpleQueue[Press]
) -> None:
    """Tracebacks are large, and rarely read."""
    live.tick()
    assert canvas.drawn[-1].details.examples is None
    commands.put(Press(Command.SHOW, target="7b0f44a1"))
    step(live)
    live.tick()

    fingerprint, letters = canvas.drawn[-1].details.examples
    assert fingerprint == "7b0f44a1"
    assert (letters[0].document, letters[0].traceback) == (
        "lux/contract-7.pdf",
        "Traceback\n  x\N{REPLACEMENT CHARACTER}[0m",
    )


def test_documents_of_an_opened_class_are_those_that_are_dead_after_a_retry(
    live: LiveRun, detailed: Any, canvas: Any, commands: SimpleQueue[Press], running: RunStats
) -> None:
    """Five that had been acked were listed, with the traceback of the old code."""
    opened = running.classes[0]
    live.tick()
    commands.put(Press(Command.SHOW, target=opened.fingerprint))
    step(live)
    detailed.failed_key = "lux/other-9.pdf"
    commands.put(Press(Command.RETRY, target=opened.fingerprint))
    step(live)
    live.tick()

    fingerprint, letters = canvas.drawn[-1].details.examples
    assert (fingerprint, [each.document for each in letters]) == (opened.fingerprint, ["lux/other-9.pdf"])


def test_end_is_drawn_with_the_newest_history(
    live: LiveRun, detailed: Any, canvas: Any, done: RunStats, clock: Any
) -> None:
    """The chart covers the whole run."""
    live.tick()
    detailed.answer = done
    clock.now += 0.5

    assert live.tick() is False
    assert detailed.looked == 2


def test_lab_is_drawn_until_it_is_closed(live_lab: LiveQueues, hand_lab: Any, canvas: Any, clock: Any) -> None:
    """Then the last table stays, with the reason."""
    assert live_lab.tick()
    assert [row.name for row in canvas.drawn[0].rows][:2] == ["pages", "ocr"]
    assert dict(canvas.drawn[0].sparks)["pages"][-1] > 0

    hand_lab.picture = LabClosed(lab="papers", what="it", left="")
    clock.now += 1
    assert live_lab.tick() is False
    assert canvas.last.table.rows
    assert "papers" in canvas.last.notice.text


def test_what_is_not_known_any_more_is_shown_as_of_when_it_was(
    live_lab: LiveQueues, hand_lab: Any, canvas: Any, clock: Any
) -> None:
    """After a SIGKILL of the scheduler tables said: running, 61.4/s, in 43 s."""
    assert live_lab.tick()
    hand_lab.picture = LabClosed(lab="papers", what="it", left="", how="has lost its scheduler")
    clock.now += 1
    assert live_lab.tick() is False

    last = canvas.last
    assert last.stale
    for table, rates in ((last.table, ("in/s", "out/s")), (last.runs_table, ("end", "per second"))):
        heads = [column.title for column in table.columns]
        assert "state at 14:22:07" in heads
        assert {row[heads.index(rate)].text for row in table.rows[:1] for rate in rates} == {UNKNOWN}, heads
    assert {row.state.split()[0] for row in last.rows} == {"Was"}
    assert last.buttons == ()


def test_commands_reach_the_queue_that_was_meant(
    live_lab: LiveQueues, hand_lab: Any, canvas: Any, commands: SimpleQueue[Press]
) -> None:
    """By the name that the row showed."""
    live_lab.tick()
    for press in (
        Press(Command.PAUSE, "pages"),
        Press(Command.RESUME, "embed"),
        Press(Command.DRAIN, "ocr"),
        Press(Command.SCALE, "ocr", n=4),
        Press(Command.PURGE, "pages"),
        Press(Command.RETRY, "pages", "parse-invoices"),
        Press(Command.COMPACT, "pages"),
    ):
        commands.put(press)
        step(live_lab)
    live_lab.tick()

    assert hand_lab.done == [
        "pages pause", "embed resume", "ocr drain", "ocr scale 4", "pages purge dead", "retry parse-invoices",
        "pages compact",
    ]  # fmt: skip
    assert canvas.drawn[-1].notice.text == "pages compacted: 2.2 GB before, 900 MB now."


def test_name_too_long_to_be_shown_still_finds_its_queue(
    live_lab: LiveQueues, hand_lab: Any, canvas: Any, snapshot: Snapshot, commands: SimpleQueue[Press]
) -> None:
    """Rows show 80 characters of it."""
    long = "q" * 200
    hand_lab.picture = replace(snapshot, queues=(replace(snapshot.queues[0], name=long), *snapshot.queues[1:]))
    live_lab.tick()
    commands.put(Press(Command.PAUSE, canvas.drawn[0].rows[0].name))
    live_lab.tick()

    assert hand_lab.done == [f"{long} pause"]


def test_command_that_breaks_does_not_end_the_view(
    live_lab: LiveQueues, hand_lab: Any, canvas: Any, commands: SimpleQueue[Press]
) -> None:
    """A bug in one button leaves the others."""
    live_lab.tick()
    hand_lab.refusal = ZeroDivisionError("oops")
    commands.put(Press(Command.PAUSE, "pages"))

    assert live_lab.tick()
    assert canvas.drawn[-1].notice.text == "Pause failed: ZeroDivisionError: oops"


def test_every_press_is_answered(live_lab: LiveQueues, canvas: Any, commands: SimpleQueue[Press]) -> None:
    """Also one that changes nothing: its button must come back."""
    live_lab.tick()
    before = len(canvas.drawn)
    commands.put(Press(Command.ASK))
    live_lab.tick()

    assert live_lab.obeying.answered == 1
    assert len(canvas.drawn) == before + 1


def test_queue_obeys_without_a_name(hand_pool: Any, canvas: Any, clock: Any, commands: SimpleQueue[Press]) -> None:
    """There is only one."""
    live = LiveQueues(hand_pool, canvas, commands=commands, clock=clock)
    live.tick()
    commands.put(Press(Command.PAUSE))
    commands.put(Press(Command.COMPACT))
    step(live)

    assert hand_pool.done == ["pages pause", "pages compact"]
    assert canvas.drawn[0].single
    assert canvas.drawn[0].details.chart.values[-1] == 16_057


def test_a_view_of_a_run_that_rests_draws_a_retry_from_elsewhere_when_it_is_asked_to(
    live: LiveRun, detailed: Any, canvas: Any, done: RunStats, running: RunStats, clock: Any
) -> None:
    """The button of the choice sent documents again, and "done, 76 dead" stayed where nobody had asked for seconds."""
    canvas.keeps, detailed.answer = True, replace(done, at=done.at + 3600)
    live.tick()
    clock.now += 1.0
    live.tick()
    detailed.answer = running
    clock.now += 1.0
    live.tick()
    assert canvas.drawn[-1].face is Face.DONE_DEAD

    live.look_again()
    live.tick()

    assert canvas.drawn[-1].face is Face.RUNNING
