"""What the run view says, and when."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dqlab.live import details
from dqlab.live.canvases import bundle
from dqlab.live.run_picture import Focus, Standing, absent_view, run_view
from dqlab.live.run_rows import run_rows, run_word
from dqlab.live.views import Command, Face
from dqlab.numbers import UNKNOWN
from dqlab.stats import (
    BatchStats,
    Blocked,
    ConsumerStats,
    Counts,
    Eta,
    RunState,
    RunStats,
    Snapshot,
    StopReason,
)
from dqlab.stats.runs import Spending, spend_of
from tests.live.drawn import html_of, screen_of


def test_running_view_answers_how_much_how_fast_and_what_failed(running: RunStats) -> None:
    """The four figures, in the order in which people ask."""
    view = run_view(running)

    assert (view.chip, view.percent, view.unit) == ("Running", "65.4 %", "pages")
    assert view.subtitle == "parse v4 · queue pages · 23 min so far · live 14:22:07"
    assert [(f.label, f.value, f.unit, f.second) for f in view.figures] == [
        ("Left", "315,894", "pages", "16,121 documents"),
        ("Done at", "14:34", "in 12 min", "80 % sure: 14:32\N{EN DASH}14:38"),
        ("Speed, 60 s at work", "451", "pages/s", "23.9 documents/s"),
        ("Dead", "212", "documents", "0.66 %"),
    ]
    assert view.figures[3].extra == "211 waiting to retry"


def test_a_run_whose_sink_refuses_rows_has_the_reason_in_its_view(running: RunStats) -> None:
    """It stands still, and it has consumers: what it waits for has to be read there."""
    why = "its rows cannot be written to out/: No space left on device"
    held = replace(running, state=RunState.WAITING, why=why, blocked=Blocked.RESULTS, rate=None, units_rate=None)

    view = run_view(held)

    assert view.chip == "Waiting"
    assert view.notice.text == why
    assert (
        next(figure.second for figure in view.figures if figure.label.startswith("Speed")) == "while its sink refuses"
    )


def test_a_run_whose_documents_are_refused_has_the_reason_in_its_view(running: RunStats) -> None:
    """Credentials expire in the night; it has consumers, and nothing has failed."""
    why = "its documents cannot be read: s3://bucket refuses what it gave before"
    stopped = replace(running, state=RunState.STOPPED, stop=StopReason.REFUSED, why=why, rate=None, units_rate=None)

    view = run_view(stopped)

    assert view.notice is not None
    assert view.notice.text == f"{why}. Nothing confirmed was lost."
    assert view.buttons[0].command is Command.RESUME


def test_bar_stacks_states_in_one_order_and_adds_up(running: RunStats) -> None:
    """Settled first, waiting last, so the eye finds the edge that moves."""
    bars = run_view(running).bars

    assert [bar.state for bar in bars] == ["acked", "dead", "leased", "ready", "delayed"]
    assert sum(bar.fraction for bar in bars) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("state", "face", "chip", "commands"),
    [
        (RunState.SUBMITTING, Face.SUBMITTING, "Submitting", [Command.PAUSE, Command.CANCEL]),
        (RunState.RUNNING, Face.RUNNING, "Running", [Command.PAUSE, Command.CANCEL]),
        (RunState.PAUSED, Face.PAUSED, "Paused", [Command.RESUME, Command.CANCEL]),
        (RunState.WAITING, Face.WAITING, "Waiting", [Command.PAUSE, Command.CANCEL]),
        (RunState.STOPPED, Face.STOPPED, "Stopped", [Command.RESUME, Command.CANCEL]),
        (RunState.INCOMPLETE, Face.INCOMPLETE, "Incomplete", [Command.PAUSE, Command.CANCEL]),
    ],
)
def test_each_state_has_its_word_and_only_the_buttons_that_work(
    running: RunStats, state: RunState, face: Face, chip: str, commands: list[Command]
) -> None:
    """A button that does nothing is worse than none."""
    view = run_view(replace(running, state=state))

    assert (view.face, view.chip) == (face, chip)
    assert [button.command for button in view.buttons] == commands
    assert view.ask is not None


@pytest.fixture
def all_failed(running: RunStats) -> RunStats:
    """A run that paused itself, because its first hundred documents all failed."""
    why = "all of its first 100 documents failed with ValueError: no total"
    counts = Counts(dead=100, ready=1_900)
    return replace(
        running,
        state=RunState.STOPPED,
        stop=StopReason.ALL_FAILED,
        why=why,
        counts=counts,
        units=None,
        total=2_000,
        eta=None,
        classes=(),
    )


def test_run_in_which_everything_failed_is_to_be_mended_first(all_failed: RunStats) -> None:
    """The first button was the one whose press failed the other 1,900 documents too."""
    fix, resume, cancel = run_view(all_failed).buttons

    assert (fix.command, fix.label, fix.primary) == (Command.FIX, "Fix & retry…", True)
    assert fix.hint == ("All have failed with parse v4. Edit its cell and run it, then retry with the new code.")
    assert (resume.command, resume.label) == (Command.RESUME, "Resume with the same code")
    assert not resume.primary
    assert resume.hint == (
        "1,900 documents run with parse v4. All failed with it so far, and the run will not pause itself again."
    )
    assert cancel.command is Command.CANCEL
    assert run_view(all_failed).notice.text == (
        "all of its first 100 documents failed with ValueError: no total. Nothing confirmed was lost. "
        "Mend parse, then retry with it: waiting documents run it too."
    )
    assert run_view(all_failed).figures[1].second == "after a retry"


def test_until_the_cell_is_edited_a_class_that_is_everything_is_not_offered_with_its_own_code(
    all_failed: RunStats, running: RunStats, snapshot: Snapshot
) -> None:
    """*Fix & retry…* led to "Retry 100 with v4": the code with which all 100 had failed."""
    stopped = replace(all_failed, classes=(replace(running.classes[0], dead=100, retrying=0),))
    ended = replace(stopped, state=RunState.DONE, stop=None, counts=Counts(dead=100), total=100, ended=stopped.at)
    for stats in (stopped, ended):
        view = run_view(stats, Focus(snapshot=snapshot))
        [row] = view.failures

        assert row.mend == "All have failed with parse v4. Edit its cell and run it, then retry with the new code."
        assert (row.retry, row.hint) == ("Retry 100 with the same code", "")
        assert (view.buttons[0].label, view.buttons[0].primary) == ("Fix & retry…", True)
        assert view.buttons[0].target == row.fingerprint
        assert not any(each.label.startswith("Retry") for each in view.buttons)

        mended = run_view(stats, Focus(snapshot=snapshot, newer=True))
        assert (mended.failures[0].mend, mended.failures[0].retry) == ("", "Retry 100 with parse v5")
        assert (mended.buttons[0].label, mended.buttons[0].primary) == ("Retry 100 with parse v5", True)


def test_run_in_which_everything_failed_is_retried_with_the_mended_function_by_its_first_button(
    all_failed: RunStats, snapshot: Snapshot
) -> None:
    """The retry was offered at the end alone, which such a run reaches when all its documents have failed."""
    view = run_view(all_failed, Focus(snapshot=snapshot, newer=True))

    assert [(each.label, each.primary) for each in view.buttons] == [
        ("Retry 100 with parse v5", True),
        ("Resume with the same code", False),
        ("Cancel run…", False),
    ]
    assert view.buttons[0].hint.endswith("waiting documents run it too")
    assert "Mend parse" not in view.notice.text


def test_documents_that_their_function_puts_off_are_counted_in_words(running: RunStats) -> None:
    """A function that raises `dq.Later` each time was a run that stood at 0 % for no reason that any view gave."""
    waits = replace(running, counts=Counts(delayed=12, leased=1), units=None, retrying=0, eta=None, total=13)

    words = "12 documents put off by their function"
    assert run_view(waits).notice.text == f"{words} (dq.Later), to be run again when their time has come"
    assert [row.why for row in run_rows(Snapshot(at=0, seq=0, runs=(waits,)))] == [words]
    assert run_view(replace(waits, retrying=12)).notice.text == "", "they failed, and the figures say so"
    assert run_view(replace(waits, counts=Counts(delayed=12, ready=1))).notice.text == "", "others are taken meanwhile"


def test_finished_run_with_dead_says_so_in_the_chip(done: RunStats) -> None:
    """Done and done-but are different things."""
    view = run_view(done)

    assert (view.face, view.chip, view.percent) == (Face.DONE_DEAD, "Done, 212 dead", "100 %")
    assert (view.buttons, view.ask) == ((), None)
    assert view.figures[1].value == "14:33:54"
    assert view.sentence == "48,210 documents, 914,306 pages in 35 min 14 s: 433 pages/s, 22.8 documents/s"
    assert view.period == "21 Nov 2026, 13:58:40 to 14:33:54"


def test_lost_documents_are_never_done_and_well(done: RunStats) -> None:
    """A corrupted record is reported, not rounded away."""
    view = run_view(replace(done, counts=Counts(acked=48_207, lost=3)))

    assert view.chip == "Done, 0 dead, 3 lost"


def test_cancelled_run_shows_how_far_it_got(done: RunStats) -> None:
    """All settled is 100 %, but nobody who cancels expects to read that."""
    stats = replace(done, state=RunState.CANCELLED, units=None, counts=Counts(acked=4_050, dead=11, cancelled=2_939))

    assert run_view(stats).percent == "58.0 %"


def test_empty_input_is_not_a_success(running: RunStats) -> None:
    """0 of 0 done in green hides a wrong path."""
    view = run_view(replace(running, total=0, counts=Counts(), units=None, state=RunState.DONE))

    assert (view.face, view.chip, view.percent) == (Face.EMPTY, "Nothing to do", "0")
    assert view.compact[0] == "the input had no documents; nothing was queued"


def test_input_that_failed_before_its_first_document_is_not_called_empty(running: RunStats) -> None:
    """A generator that raises at once was "nothing to do: check the path", and its error was nowhere."""
    failed = replace(running, total=0, counts=Counts(), units=None, state=RunState.INCOMPLETE)

    assert run_view(failed).face is Face.INCOMPLETE
    assert run_word(failed)[0] == "incomplete"


def test_silence_keeps_numbers_and_drops_what_is_live(running: RunStats) -> None:
    """The last counts are worth something; a speed from a minute ago is not."""
    view = run_view(running, standing=Standing(silence=running.at - 38.2))

    assert (view.face, view.stale, view.live) == (Face.NO_ANSWER, True, "as of 14:22:07")
    fate = "The run goes on without this view, unless its cluster has ended."
    assert view.notice.text == f"No answer since 14:21:28. This view keeps asking. {fate}"
    assert view.figures[2].value == UNKNOWN
    assert view.figures[0].value == "315,894"
    assert [button.command for button in view.buttons] == [Command.ASK]


def test_cancelling_the_rest_of_a_run_leaves_its_share_of_dead_documents(running: RunStats) -> None:
    """18 dead went from 2.42 % to 0.90 %, because those that never ran counted among the settled ones."""
    mid = replace(running, counts=Counts(ready=1_245, acked=737, dead=18))
    cancelled = replace(mid, state=RunState.CANCELLED, counts=Counts(acked=737, dead=18, cancelled=1_245))

    shares = [run_view(stats).figures[3].second for stats in (mid, cancelled)]

    assert shares == ["2.38 %", "2.38 % of what ran"]


def test_question_repeats_what_will_be_lost(running: RunStats) -> None:
    """The count stands in the question and on the button."""
    ask = run_view(running).ask

    assert ask == ("Cancel 16,121 documents?", "31,877 results stay.", "Keep running", "Cancel 16,121")


def test_screen_readers_hear_quarters(running: RunStats) -> None:
    """Not every tick, but that it moves."""
    counts = [Counts(acked=n, ready=100 - n) for n in (10, 25, 74, 99, 100)]
    stats = [replace(running, units=None, counts=each) for each in counts]

    assert [run_view(each).milestone.removesuffix(" percent of documents settled") for each in stats] == [
        "",
        "at least 25",
        "at least 50",
        "at least 75",
        "100",
    ]


def test_classes_left_out_are_counted(running: RunStats) -> None:
    """A list that is cut without a word is read as all there is."""
    view = run_view(replace(running, classes=running.classes[:2], classes_total=4))

    assert view.more == "and 2 more classes, 23 dead: %dq failed parse-invoices"


def stuck(running: RunStats, snapshot: Snapshot, age: float, *, others: int = 0) -> tuple[RunStats, Focus]:
    """All is done but one document, which c0 has had for some seconds; others hold documents of other runs."""
    one = ConsumerStats("c0", running.queue, "w-0", 1, 9, busy_share=0.0, oldest_age=age, document="inv-00777.pdf")
    rest = [replace(one, name=f"c{n + 1}", document="other.pdf") for n in range(others)]
    seen = replace(snapshot, consumers=(one, *rest), attention=(), runs=())
    counts = Counts(leased=1, acked=4_999)
    run = replace(running, counts=counts, units=None, eta=None, total=5_000, why="", stuck=age > 60)
    return run, Focus(seen)


def test_a_run_that_waits_for_one_document_names_it(running: RunStats, snapshot: Snapshot) -> None:
    """It said "99.9 %, no estimate yet", for ever."""
    view = run_view(*stuck(running, snapshot, 360.0))

    assert view.notice.text == "Waiting for 1 document: inv-00777.pdf, on c0 for 6 min"
    assert view.figures[1].second == "when 1 document ends"
    for drawn in (screen_of(view), html_of(view)):
        assert "Waiting for 1 document: inv-00777.pdf, on c0 for 6 min" in drawn

    assert [(each.command, each.label, each.target) for each in view.notice.buttons] == [
        (Command.REPLACE, "Replace c0", "c0"),
        (Command.GIVE_UP, "Give up inv-00777.pdf", "inv-00777.pdf"),
    ]


def test_a_run_that_waits_long_for_its_last_document_is_waiting(running: RunStats, snapshot: Snapshot) -> None:
    """Its chip stayed blue and "Running" for as long as the document was stuck."""
    late, long = (run_view(*stuck(running, snapshot, age)) for age in (30.0, 90.0))

    assert (late.face, late.chip) == (Face.RUNNING, "Running")
    assert (long.face, long.chip) == (Face.WAITING, "Waiting")
    assert [each.label for each in long.buttons] == ["Pause", "Cancel run…"]


def test_what_a_press_has_done_is_not_what_is_kept(running: RunStats, snapshot: Snapshot) -> None:
    """ "33 documents sent through again." was saved into the notebook."""
    run, focus = stuck(running, snapshot, 360.0)
    for shown in (
        run_view(run, focus, standing=Standing(busy="#50: tried again; c0 takes other documents now.")),
        run_view(run, focus, standing=Standing(trouble="Replace failed: gone")),
    ):
        kept = bundle(shown)
        assert "tried again" not in str(kept)
        assert "failed: gone" not in str(kept)
        assert "Waiting for 1 document: inv-00777.pdf" in kept["text/html"]
        assert "Waiting for 1 document: inv-00777.pdf" in kept["text/plain"]
    over = "Its lab was closed, so it cannot be asked any more."
    assert (
        over
        in bundle(run_view(running, standing=Standing(over=over, busy="33 documents sent through again.")))["text/html"]
    )


def test_a_run_that_has_not_ended_is_dated_by_its_last_numbers(running: RunStats) -> None:
    """ "no answer, 35.1 % since 20:10:16" gave the begin of the run; its last answer was of 23 s later."""
    for view in (run_view(running), run_view(running, standing=Standing(silence=running.at - 38))):
        assert view.period == "as of 21 Nov 2026, 14:22:07, began 13:58:40"
        assert "as of 21 Nov 2026, 14:22:07" in html_of(view)
    assert run_view(replace(running, started=running.started - 86_400)).period.endswith("began 20 Nov 2026, 13:58:40")


def test_what_to_do_next_is_not_cut_off_a_long_sentence(running: RunStats) -> None:
    """ "To go on: `dqlab up ...`, then lab.attach..." ended there."""
    reason = f"lab 'local' was closed. {'What was confirmed is kept. ' * 20}To go on: lab.attach('parse-invoices')."

    for view in (run_view(running, standing=Standing(over=reason)), absent_view("parse-invoices", reason)):
        assert view.notice.text.endswith("lab.attach('parse-invoices').")


def test_the_dead_of_a_run_that_has_ended_need_the_user(done: RunStats, snapshot: Snapshot) -> None:
    """It said "Needs you 0" beside the button that retries them: just when somebody who was away returns."""
    view = run_view(done, Focus(snapshot))

    assert view.details.needs_total == len([each for each in done.classes if each.dead]) > len(view.details.needs) == 3
    assert {(each.subject, each.label, each.tone) for each in view.details.needs} >= {
        (f"{done.classes[0].dead} dead", "Fix & retry…", "bad")
    }
    assert run_view(replace(done, classes=(), counts=Counts(acked=9)), Focus(snapshot)).details.needs_total == 0


def test_an_end_within_two_minutes_is_told_in_seconds(running: RunStats) -> None:
    """Somebody who waits asks for them, and "<1 min" leaves them out."""
    near = replace(running, eta=Eta(running.at + 10, running.at + 18, running.at + 30))
    view = run_view(near)

    assert view.figures[1][:4] == ("Done in", "10 to 30", "s", "80 % sure")
    assert "done  in 10 to 30 s\n" in screen_of(view)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"counts": Counts(ready=9, acked=2)}, "after 5 documents"),
        ({"counts": Counts(leased=2, acked=20)}, "when 2 documents end"),
        ({"counts": Counts(ready=9, leased=2, acked=20), "rate": None}, "when documents end again"),
        ({"counts": Counts(ready=9, leased=2, acked=20), "rate": 0.2}, "in a moment"),
    ],
)
def test_a_missing_estimate_has_a_reason(running: RunStats, more: dict[str, Any], why: str) -> None:
    """A blank place looks like a defect of the view."""
    view = run_view(replace(running, eta=None, units=None, **more))

    assert view.figures[1].second == why


@pytest.mark.parametrize(("consumers", "why"), [(0, "without consumers"), (2, "while its store takes nothing")])
def test_a_run_that_waits_names_what_it_waits_for(running: RunStats, consumers: int, why: str) -> None:
    """ "Without consumers" stood below "2 consumers" while the disk was full."""
    speed = run_view(replace(running, state=RunState.WAITING, rate=None, consumers=consumers)).figures[2]

    assert speed.second == why


def test_batches_and_set_up_stand_beside_the_consumers_with_the_mean_fill(running: RunStats) -> None:
    batched = replace(running, consumers=2, batch=BatchStats(size=64, calls=3, documents=183), setup=4.2)

    assert run_view(batched).consumers == "2 consumers, batches of 64 (mean 61), set-up 4.2 s a slot"


def test_a_run_that_is_over_holds_nothing_of_the_next_one_on_its_queue(
    running: RunStats, done: RunStats, snapshot: Snapshot
) -> None:
    """The view of 43 documents kept "Unacked 64 · oldest 0 s", of the run that came after it."""
    assert snapshot.unacked.total
    assert run_view(running, Focus(snapshot)).details.leases == details.leases(snapshot)

    leases = run_view(done, Focus(snapshot)).details.leases
    assert leases is not None
    assert (leases.title, leases.bins, leases.rows) == ("0", (), ())


def test_a_cancelled_run_says_how_many_of_its_documents_ran(done: RunStats) -> None:
    """ "3,000 documents in 4.6 s: 22.1 documents/s" was said of 102."""
    counts, started = Counts(acked=100, dead=2, cancelled=2898), done.started
    run = replace(
        done, state=RunState.CANCELLED, counts=counts, units=None, total=3000, ended=started + 4.6, at=started + 9
    )

    assert run_view(run).sentence == "102 of 3,000 documents in 4.6 s: 22.2 documents/s"
    paged = replace(run, units=Counts(acked=200, cancelled=5800))
    assert run_view(paged).sentence.startswith("102 of 3,000 documents, 200 of 6,000 pages in 4.6 s: ")


def test_what_is_held_of_other_runs_of_its_queue_is_not_shown_as_the_runs(
    running: RunStats, snapshot: Snapshot
) -> None:
    """In one frame stood "unacked 2" and "Unacked 10": the second was of all runs of the queue."""
    (queue, *others), total = snapshot.queues, snapshot.unacked.total
    mine = replace(running, counts=replace(running.counts, leased=2))
    held = replace(queue, counts=replace(queue.counts, leased=total))
    shared = replace(snapshot, queues=(held, *others), runs=(mine,))
    alone = replace(shared, queues=(replace(held, counts=replace(held.counts, leased=2)), *others))

    assert run_view(mine, Focus(shared)).details.leases.title.startswith(f"{total} in queue pages · oldest")
    assert run_view(mine, Focus(alone)).details.leases.title.startswith(f"{total} · oldest")


def test_a_run_that_goes_on_says_how_its_calls_are_made(running: RunStats) -> None:
    """The widget has no other place for it; once the run rests, nothing is called."""
    paced = replace(running, why="", pace="12 calls at once; 500 calls in 60 s", batch=BatchStats(16, 10, 152))

    assert run_view(paced).notice.text == "batches of 16, 15.2 on average; 12 calls at once; 500 calls in 60 s"
    assert "calls" not in run_view(replace(paced, state=RunState.DONE)).notice.text


def test_a_run_with_a_budget_says_what_changed_what_binds_and_how_long_it_lasts(running: RunStats) -> None:
    """The same in text, in HTML, after JSON, and as `Run.spend` has it."""
    parts = [
        Spending(spent={"eur": 1.6}, spread={"eur": 0.01}, level=12, budget=(10.0, "eur"), binds="the limit of calls"),
        Spending(spent={"eur": 1.6}, spread={"eur": 0.0}, level=12, budget=(10.0, "eur"), binds="the limit of calls"),
    ]
    parts[1].moves = [(running.at - 3600, "48 -> 24 calls at once"), (running.at - 60, "24 -> 12 calls at once")]
    part_done = replace(
        running, why="", units=None, counts=Counts(600, acked=400), total=1000, rate=1.0, state=RunState.RUNNING
    )
    spend = spend_of(parts, part_done)
    sent = Snapshot.from_dict(
        json.loads(json.dumps(Snapshot(running.at, 1, runs=(replace(part_done, spend=spend),)).to_dict()))
    )

    view = run_view(sent.runs[0])

    assert view.notice.text == (
        "at 14:21: 24 -> 12 calls at once (in one of 2 shards); spent 3.2 eur; budget 20 eur, enough; reserved 0 eur; "
        "in all 8 eur (7.504 to 8.496); bound by the limit of calls"
    )
    assert (spend.level, spend.lasts) == (24, None)
    assert "spent 3.2 eur" in html_of(view)
    assert "spent 3.2 eur" in " ".join(screen_of(view).split())
    parts[0].budget = parts[1].budget = (2.0, "eur")
    assert spend_of(parts, part_done).words(running.at).count("spent in 1 min 39 s at this speed") == 1
    assert spend_of(parts, part_done).lasts == pytest.approx(100)
    assert "budget     20 eur, enough" in repr(replace(spend, in_all=spend.in_all | {"tokens": (1.0, 2.0, 3.0)}))


def test_a_followed_run_says_what_was_taken_and_when_it_looks_again(done: RunStats) -> None:
    """It rests, and it goes on by itself: neither "done" nor "running" is true."""
    followed = replace(done, state=RunState.FOLLOWING, why="following inbox/**, 3,112 taken, next look in 40 s")

    view = run_view(followed)

    assert (view.chip, view.notice.text if view.notice else "") == ("Following", followed.why)
    assert run_word(followed)[0] == "following"
    assert not followed.resting
