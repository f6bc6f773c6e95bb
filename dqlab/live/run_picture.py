"""Turn statistics into a `RunView`: its words, figures and buttons.

Owns the sentences of the run view and when each is shown. Computes nothing: every number is a field or property of
`RunStats`, spelled by `numbers`. Users' text leaves here fit for one line, but not escaped.

"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dqlab import numbers
from dqlab.live import details
from dqlab.live.details import FIX_AND_RETRY, Again, failure_row
from dqlab.live.next_lines import NO_NAMES, NotebookNames, first, offers
from dqlab.live.parts import Bar
from dqlab.live.run_rows import AT_WORK, WHOLE_RUN, left_in_words, put_off_words
from dqlab.live.style import StateLook
from dqlab.live.views import (
    NO_DETAILS,
    NO_NOTICE,
    NO_OFFERS,
    Ask,
    Button,
    Command,
    Counter,
    Details,
    Example,
    Face,
    Figure,
    Leases,
    Notice,
    RunView,
    Tone,
)
from dqlab.numbers import many
from dqlab.stats import CodeStats, Counts, History, RunState, RunStats, Snapshot
from dqlab.stats.attention import failures_of
from dqlab.stats.eta import MIN_DOCUMENTS, MIN_SECONDS
from dqlab.stats.queues import ConsumerStats
from dqlab.stats.runs import setup_words
from dqlab.texts import as_word, one_line


class Standing(NamedTuple):
    """How a view stands, besides the numbers."""

    silence: float | None = None
    """When the last answer came, where that is a while ago, seconds since 1970 UTC."""
    over: str = ""
    """Why no more answers can come, though the run may go on."""
    gone: bool = False
    """With `over`: the run does not exist any more, so no line is offered to type."""
    trouble: str = ""
    """Why the last command was refused."""
    busy: str = ""
    """What the last command is doing, or has done."""
    said: str = ""
    """What was decided where the view stands, kept while there is nothing else to report."""

    @property
    def stale(self) -> bool:
        """Whether the numbers are old: they are shown dated, and without speed."""
        return self.silence is not None or bool(self.over)


class Focus(NamedTuple):
    """What is known of a run besides its statistics; each part may be missing."""

    snapshot: Snapshot | None = None
    history: History | None = None
    source: str | None = None
    """Source of the newest code."""
    examples: tuple[str, tuple[Example, ...]] | None = None
    """Fingerprint of the opened class, and documents of it."""
    newer: bool = False
    """The notebook has redefined the run's function, and a retry takes the new definition."""
    names: NotebookNames = NO_NAMES
    """The notebook's names for the run and its lab."""
    tried: int | None = None
    """Documents of the sample, where the run was rehearsed and this process can submit the rest."""


NO_FOCUS, AS_EVER = Focus(), Standing()


_NO_ESTIMATE = {
    Face.SUBMITTING: "when the listing has ended",
    Face.PAUSED: "after Resume",
    Face.STOPPED: "after Resume",
    Face.WAITING: "when it goes on",
    Face.NO_ANSWER: "no live numbers",
}
_NO_SPEED = {Face.PAUSED: "while it is paused", Face.STOPPED: "while it is paused", Face.WAITING: "without consumers"}
_EDIT_FIRST = "edit the function and run its cell first, to retry with new code"
NEAR_END = "Done in"
"""Label of an end that is shown in seconds."""
OPEN = 0.75
"""Share of the bar for the known documents of a run whose input goes on: a full bar would look done."""
LONGEST = 1_000
"""Characters of a sentence about an error, long enough for its last words: they name the next step."""
LATE, NAMED = 10.0, 3
"""Seconds after which a document is named as the last one to wait for, and how many are named."""
_ACTIONS = ("retry", "show", "resume", "scale")
MORE_TRIED = 100
"""Documents that a rehearsal tries when more are asked for."""
_HALTED = (Face.PAUSED, Face.STOPPED)


def absent_view(name: str, reason: str = "", *, silence: float | None = None, gone: bool = False) -> RunView:
    """Return the view of a run that has not answered yet, cannot be reached now, or does not exist any more."""
    face = Face.GONE if gone else Face.CONNECTING if silence is None and not reason else Face.NO_ANSWER
    waiting = () if reason else ("asking for the first numbers", "nothing to show yet; the run is not touched by this")
    notice = Notice(one_line(reason, LONGEST), Tone.WARN) if reason else NO_NOTICE
    return RunView(
        name=one_line(name),
        face=face,
        chip=face.value.capitalize(),
        percent="" if reason else numbers.UNKNOWN,
        notice=notice if silence is None or reason else silence_notice(silence),
        compact=waiting,
        buttons=() if silence is None or reason else (Button(Command.ASK, "Retry now"),),
    )


def moved_view(name: str) -> RunView:
    """Return the view of a run that is shown elsewhere now."""
    return RunView(
        # Without numbers: they would stand still in this picture.
        name=one_line(name),
        face=Face.RUNNING,
        chip="Shown below",
        compact=("its live view is in a later cell",),
    )


def run_view(stats: RunStats, focus: Focus = NO_FOCUS, standing: Standing = AS_EVER) -> RunView:
    """Return the picture of a run."""
    silence, over, gone = standing.silence, standing.over, standing.gone
    face = _face(stats, stale=standing.stale)
    # Once, here: sentence, figures, chart and log of one picture must agree on the end.
    stats = replace(stats, eta=None if stats.resting or face is Face.NO_ANSWER else stats.eta)
    share = stats.share
    name, chip = one_line(stats.name), _chip(face, stats)
    waits = _waiting_for(face, stats, focus)
    lasting = Notice(one_line(over, LONGEST), Tone.BAD) if over else _lasting(face, stats, focus, waits, silence)
    if standing.said and (focus.tried is not None or not lasting.text):
        lasting = Notice(standing.said)
    if face is Face.EMPTY:
        return RunView(
            name=name,
            face=face,
            chip=chip,
            percent="0",
            moment=numbers.clock(stats.at),
            compact=("the input had no documents; nothing was queued", "check the path or the pattern, then map again"),
        )
    shown = Face.GONE if gone else Face.WAITING if face is Face.RUNNING and stats.stuck else None
    code = "" if stats.code.name == "?" else f"{one_line(stats.code.name, 40)} {stats.code.words}"
    again = None if focus.snapshot is None else _again(stats, focus)
    return RunView(
        name=name,
        face=shown or face,
        chip=shown.value.capitalize() if shown else chip,
        unit=stats.unit,
        code=code,
        queue=one_line(stats.queue, 60),
        consumers=_consumer_words(stats, focus),
        elapsed=f"{numbers.span(stats.elapsed)}{'' if stats.resting else ' so far'}",
        moment=numbers.clock(stats.at),
        ended=numbers.instant(stats.ended, now=stats.at) if stats.resting and stats.ended is not None else "",
        period=_period(stats),
        sentence="" if gone else _sentence(stats),
        percent=numbers.share(share),
        milestone=_milestone(share, stats.unit),
        stale=standing.stale,
        notice=lasting if over else _notice(face, lasting, standing),
        lasting=lasting,
        bars=_bars(stats),
        bar_label=_bar_label(stats, share),
        counters=_counters(stats),
        figures=_figures(face, stats),
        buttons=() if over else _buttons(face, stats, focus),
        ask=_ask(face, stats, waits_for_go=focus.tried is not None),
        failures=tuple(failure_row(entry, at=stats.at, again=again) for entry in stats.classes),
        failures_title=many(stats.classes_total, "class") if stats.classes_total else "",
        more=_more(stats),
        band="" if stats.eta is None else details.band(stats.eta, stats.at),
        details=replace(_details(stats, focus), needs=(), needs_total=0) if gone else _details(stats, focus),
        variable=focus.names.run,
        offers=offers(stats, focus.source, focus.names, newer=focus.newer) if focus.snapshot is not None else NO_OFFERS,
    )


def _consumer_words(stats: RunStats, focus: Focus) -> str:
    """Return how many consumers there are and, while they work, how many of them are in trouble."""
    troubles = focus.snapshot.consumer_troubles if focus.snapshot is not None and not stats.resting else ""
    batch = stats.batch
    full = "" if batch is None else f"batches of {batch.size:,} (mean {batch.mean:,.3g})"
    parts = many(stats.consumers, "consumer"), full, setup_words(stats.setup), troubles
    return ", ".join(part for part in parts if part)


def _leases(stats: RunStats, snapshot: Snapshot) -> Leases:
    """Return the table of held messages, with its scope where that is wider than the run."""
    if stats.resting:
        return details.NO_LEASES
    queue = snapshot.queue(stats.queue)
    shared = queue is not None and queue.counts.leased > stats.counts.leased
    return details.leases(snapshot, f"in queue {one_line(stats.queue, 40)}" if shared else "")


def _details(stats: RunStats, focus: Focus) -> Details:
    code = details.code_pane(stats.code, focus.source)
    if focus.snapshot is None:
        return Details(code=code) if focus.source is not None else NO_DETAILS
    snapshot = focus.snapshot
    # A run at rest has no line of its own in the Snapshot's alerts: its dead documents make them.
    lines = [failures_of(stats, each) for each in stats.classes if each.dead] if stats.resting else snapshot.attention
    return Details(
        chart=details.left_chart(stats, focus.history),
        needs=details.needs(lines, _ACTIONS, mended=_again(stats, focus).code if focus.newer else ""),
        needs_total=len(lines) + (0 if stats.resting else max(0, snapshot.attention_total - len(lines))),
        consumers=details.consumers(snapshot, stats.consumers, ended_on=stats.queue if stats.resting else ""),
        leases=_leases(stats, snapshot),
        code=code,
        examples=focus.examples,
    )


def _again(stats: RunStats, focus: Focus) -> Again:
    """Return the retry that can be offered."""
    if focus.newer:
        rest = f"; {what_waits(stats)}" if stats.counts.waiting else ""
        hint = f"{one_line(stats.code.name, 40)} as this notebook has it now{rest}"
        return Again(code_of_retry(stats.code, newer=True), hint)
    if stats.all_failed:
        return Again("the same code", "", _edit_first(stats))
    return Again(f"v{stats.code.version}", _EDIT_FIRST)


def what_waits(stats: RunStats) -> str:
    """Return what a retry with newer code means for the documents that have yet to run."""
    return "waiting documents run it too" if stats.fails_throughout else "waiting documents keep their code"


def code_of_retry(code: CodeStats, *, newer: bool) -> str:
    """Return the code that a retry takes, as in "parse v2"."""
    return f"{one_line(code.name, 40)} v{code.version + newer}"


def _face(stats: RunStats, *, stale: bool) -> Face:
    if stale:
        return Face.NO_ANSWER
    if stats.empty:
        return Face.EMPTY
    if stats.state is RunState.DONE and (stats.counts.dead or stats.counts.lost):
        return Face.DONE_DEAD
    return Face.RUNNING if stats.state is RunState.FOLLOWING else Face(stats.state.value)


def _chip(face: Face, stats: RunStats) -> str:
    if face is Face.INCOMPLETE and stats.rehearsed:
        return "Rehearsed"
    if stats.state is RunState.FOLLOWING and face is Face.RUNNING:
        return "Following"
    if face is not Face.DONE_DEAD:
        return face.value.capitalize()
    if not stats.counts.lost:
        return f"Done, {numbers.count(stats.counts.dead)} dead"
    return f"Done, {numbers.count(stats.counts.dead)} dead, {numbers.count(stats.counts.lost)} lost"


def _period(stats: RunStats) -> str:
    if not stats.started:
        return ""
    end = stats.at if stats.ended is None else stats.ended
    same_day = numbers.date(stats.started) == numbers.date(end)
    first, last = (f"{numbers.date(moment)}, {numbers.clock(moment)}" for moment in (stats.started, end))
    if stats.ended is None:
        return f"as of {last}, began {numbers.clock(stats.started) if same_day else first}"
    return f"{first} to {numbers.clock(end) if same_day else last}"


def _milestone(share: float | None, unit: str) -> str:
    """Return progress in quarters, as a screen reader announces it."""
    if share is None or share < 0.25:
        return ""
    # "at least": a screen reader may read it when the next quarter is near.
    quarters = int(share * 4) * 25
    return f"{'' if quarters == 100 else 'at least '}{quarters} percent of {unit} settled"


def _sentence(stats: RunStats) -> str:
    units = stats.units
    if stats.resting:
        sizes = [_done_of(stats.counts, "documents")] + ([] if units is None else [_done_of(units, stats.unit)])
        size = f"{', '.join(sizes)} in {numbers.duration(stats.elapsed)}"
    else:
        sizes = [numbers.amount(stats.counts.left, "documents", of=stats.counts.all)]
        sizes += [] if units is None else [numbers.amount(units.left, stats.unit, of=units.all)]
        size = f"{' and '.join(sizes)} left after {numbers.duration(stats.elapsed)}"
    speeds = ((stats.mean_units_rate, stats.unit), (stats.mean_rate, "documents"))
    known = [numbers.speed(speed, unit) for speed, unit in speeds if speed is not None]
    return f"{size}{': ' if known else ''}{', '.join(known)}"


def _done_of(counts: Counts, unit: str) -> str:
    """Return how many documents were worked on, and the number of all where that is larger."""
    return numbers.amount(counts.worked, unit, of=counts.all if counts.worked < counts.all else None)


def silence_notice(silence: float, what: str = "The run") -> Notice:
    """Return the notice of a time without an answer, and what it means for the numbers shown."""
    # No seconds here: a poll that waits holds up the view, and a counter would stand still.
    fate = f"{what} goes on without this view, unless its cluster has ended."
    return Notice(f"No answer since {numbers.clock(silence)}. This view keeps asking. {fate}", Tone.WARN)


def _waiting_for(face: Face, stats: RunStats, focus: Focus) -> Notice:
    """Return which documents a run waits for when it has no others left, once that takes long."""
    counts = stats.counts
    if face is not Face.RUNNING or counts.waiting or not 0 < counts.leased <= NAMED or focus.snapshot is None:
        return NO_NOTICE
    held = [
        consumer
        for consumer in focus.snapshot.consumers
        if consumer.queue == stats.queue and consumer.oldest_age is not None and consumer.run in ("", stats.name)
    ]
    # With other numbers some consumers hold documents of other runs, and it is not known which ones.
    if len(held) != counts.leased:
        return NO_NOTICE
    held.sort(key=lambda each: -(each.oldest_age or 0.0))
    longest = held[0].oldest_age or 0.0
    if longest < LATE:
        return NO_NOTICE
    named = [
        f"{one_line(each.shown_document or '?', 80)}, on {each.name} for {numbers.span(each.oldest_age)}"
        for each in held
    ]
    text = f"Waiting for {many(counts.leased, 'document')}: {'; '.join(named)}"
    return Notice(text, Tone.WARN if stats.stuck else Tone.PLAIN, buttons=_release(held[0]))


def _release(held: ConsumerStats) -> tuple[Button, ...]:
    """Return the buttons for a document that a consumer has held for long."""
    tried = "What it runs is tried again, and the attempt is not counted; the consumer takes other documents."
    failed = "It is listed with the failures, and a retry sends it through again; the consumer takes other documents."
    replace = Button(Command.REPLACE, f"Replace {one_line(held.name, 20)}", hint=tried, target=held.name)
    if not held.document:
        return (replace,)
    label = f"Give up {one_line(held.document, 30)}"
    return (replace, Button(Command.GIVE_UP, label, hint=failed, target=held.document))


def _notice(face: Face, lasting: Notice, standing: Standing) -> Notice:
    """Return the effect of a press, unless the state of the run matters more."""
    if standing.trouble:
        return Notice(one_line(standing.trouble, LONGEST), Tone.BAD)
    # The effect of a press must not hide a state that needs the user.
    if standing.busy and standing.silence is None and face not in (Face.STOPPED, Face.WAITING, Face.INCOMPLETE):
        return Notice(one_line(standing.busy, 300))
    return lasting


def _lasting(face: Face, stats: RunStats, focus: Focus, waits: Notice, silence: float | None) -> Notice:
    if silence is not None:
        return silence_notice(silence)
    why = one_line(stats.why, 300)
    sentence = why.rstrip(".")
    if face is Face.STOPPED:
        return Notice(
            f"{sentence or 'It stopped itself'}. Nothing confirmed was lost.{_before_a_retry(stats, focus)}", Tone.BAD
        )
    if face is Face.WAITING:
        waiting = many(stats.counts.left, "document")
        return Notice(why or f"No consumer: {waiting} left, and none is being processed", Tone.WARN)
    if face is Face.INCOMPLETE and stats.rehearsed:
        way = "Go, or run.go() in Python" if focus.tried is not None else "its cell to be run again, which asks again"
        return Notice(f"{why}; the rest waits for {way}")
    if face is Face.INCOMPLETE:
        rest = "is settled" if stats.resting else "goes on"
        return Notice(f"{sentence or 'The input ended early'}. What was submitted before {rest}.", Tone.WARN)
    if face is Face.PAUSED and why.startswith("by "):
        return Notice(f"Paused {why}")
    if waits.text or why or not stats.only_put_off:
        return waits if waits.text else Notice(why or _pace(stats))
    return Notice(f"{put_off_words(stats)} (dq.Later), to be run again when their time has come")


def _pace(stats: RunStats) -> str:
    """Return how the calls of a run that goes on are made, where it is not one after another as fast as they can."""
    if stats.resting:
        return ""
    batch = stats.batch
    full = "" if batch is None else f"batches of {batch.size:,}, {batch.mean:,.3g} on average"
    spend = "" if stats.spend is None else one_line(stats.spend.words(stats.at), 400)
    return "; ".join(part for part in (full, setup_words(stats.setup), one_line(stats.pace, 200), spend) if part)


def _before_a_retry(stats: RunStats, focus: Focus) -> str:
    """Return what to do before a retry of a run that paused itself because everything failed."""
    if not stats.fails_throughout or focus.newer or not stats.code.name.isidentifier():
        return ""
    return f" Mend {stats.code.name}, then retry with it: {what_waits(stats)}."


def _bars(stats: RunStats) -> tuple[Bar, ...]:
    shares = stats.progress.shares
    whole = 1.0 if stats.total is not None else OPEN
    return tuple(
        Bar(state.field, round(shares[state.field] * whole, 5)) for state in StateLook if _amount(stats.counts, state)
    )


def _amount(counts: Counts, state: StateLook) -> int:
    amount: int = getattr(counts, state.field)
    return amount


def _bar_label(stats: RunStats, share: float | None) -> str:
    if share is None:
        return f"{many(stats.counts.settled, 'document')} settled so far; the total is not known yet"
    return f"{numbers.share(share).replace(' %', ' percent')} of {stats.unit} settled"


def _counters(stats: RunStats) -> tuple[Counter, ...]:
    always = (StateLook.ACKED, StateLook.DEAD) if stats.resting else (*_FLOW, StateLook.DEAD)
    rows = []
    for state in StateLook:
        amount = _amount(stats.counts, state)
        if amount or state in always:
            rows.append(Counter(state.field, state.word, numbers.count(amount), amount == 0))
    return tuple(rows)


_FLOW = (StateLook.ACKED, StateLook.LEASED, StateLook.READY, StateLook.DELAYED)


def run_figures(stats: RunStats) -> tuple[Figure, ...]:
    """Return the headline figures of a run."""
    return _figures(_face(stats, stale=False), replace(stats, eta=None) if stats.resting else stats)


def _figures(face: Face, stats: RunStats) -> tuple[Figure, ...]:
    amount, documents = left_in_words(stats), many(stats.counts.left, "document")
    second = documents if stats.units is not None and amount != documents else many(stats.consumers, "consumer")
    left = Figure("Left", *_parts_of(amount), "" if stats.resting else second)
    if stats.resting:
        ended = numbers.UNKNOWN if stats.ended is None else numbers.instant(stats.ended, now=stats.at)
        done = Figure("Ended at", ended, "", f"after {numbers.duration(stats.elapsed)}")
        speed = _speed(f"Speed, {WHOLE_RUN}", stats, stats.mean_rate, stats.mean_units_rate)
        speed = speed._replace(extra=details.with_pause(stats))
    else:
        done = _done_at(face, stats)
        rates = (None, None) if face is Face.NO_ANSWER else (stats.rate, stats.units_rate)
        speed = _speed(f"Speed, {AT_WORK}", stats, *rates)._replace(live=True)
        if face in _NO_SPEED:
            blocked = "while its store takes nothing" if face is Face.WAITING and stats.consumers else _NO_SPEED[face]
            blocked = "no consumer answers" if stats.unanswered else blocked
            speed = speed._replace(second="while its sink refuses" if stats.unwritten else blocked)
    dead = stats.counts.dead
    retry = "" if stats.resting and not stats.retrying else f"{numbers.count(stats.retrying)} waiting to retry"
    share = numbers.share(stats.dead_share, places=2) + (
        " of what ran" if dead and stats.resting and not stats.all_ran else ""
    )
    weight = stats.progress.shares["dead"]
    if weight > 2 * stats.dead_share:  # a few large ones, and a bar that is full of what failed
        share += f", {numbers.share(weight)} of {stats.unit}"
    tone = Tone.BAD if dead else Tone.QUIET
    return (
        left,
        done,
        speed,
        Figure("Dead", numbers.count(dead), numbers.noun_of(dead, "document"), share, retry, tone),
    )


def _done_at(face: Face, stats: RunStats) -> Figure:
    if stats.eta is None or stats.eta_in is None:
        why = "after a retry" if stats.fails_throughout else _NO_ESTIMATE.get(face, _no_estimate(stats))
        return Figure("Done at", numbers.UNKNOWN, "", why, live=True)
    if stats.eta.p50 - stats.at < details.NEAR:
        near = numbers.ahead(stats.eta.p10 - stats.at, stats.eta.p50 - stats.at, stats.eta.p90 - stats.at)
        return Figure(NEAR_END, *_parts_of(near), "80 % sure", live=True)
    at = numbers.due(stats.eta.p50, now=stats.at)
    return Figure("Done at", at, f"in {numbers.soon(stats.eta_in)}", details.sure(stats.eta, stats.at), live=True)


def _no_estimate(stats: RunStats) -> str:
    if stats.counts.settled < MIN_DOCUMENTS:
        return f"after {many(MIN_DOCUMENTS, 'document')}"
    if stats.elapsed < MIN_SECONDS:
        return "in a moment"
    # The first document may have started late: while documents end, an estimate follows soon.
    return details.last_ends(stats) or ("in a moment" if stats.rate else "when documents end again")


def _parts_of(text: str) -> tuple[str, str]:
    """Return the number, or numbers, and the unit."""
    amount, _, unit = text.rpartition(" ")
    return amount, unit


def _speed(label: str, stats: RunStats, rate: float | None, units_rate: float | None) -> Figure:
    if stats.units is None:
        return Figure(label, numbers.rate(rate), "documents/s", "")
    value, _, unit = numbers.speed(units_rate, stats.unit).partition(" ")
    return Figure(label, value, unit or f"{stats.unit}/s", f"{numbers.rate(rate)} documents/s")


def _buttons(face: Face, stats: RunStats, focus: Focus) -> tuple[Button, ...]:
    if face is Face.NO_ANSWER:
        return (Button(Command.ASK, "Retry now"),)
    if focus.tried is not None:
        return _buttons_of_a_rehearsal(stats, focus, focus.tried)
    if stats.resting:
        return _buttons_of_the_end(stats, focus) if focus.snapshot is not None else ()
    cancel = Button(Command.CANCEL, "Cancel run…")
    if stats.fails_throughout:
        first_of_all = _retries(stats, focus) if focus.newer else (_fix_button(stats, focus),)
        return (*first_of_all, Button(Command.RESUME, "Resume with the same code", hint=_same_code(stats)), cancel)
    first = Button(Command.RESUME, "Resume", primary=True) if face in _HALTED else Button(Command.PAUSE, "Pause")
    return (first, cancel)


def _buttons_of_a_rehearsal(stats: RunStats, focus: Focus, tried: int) -> tuple[Button, ...]:
    """Return what can be done once a sample is settled; while it runs, Go is of no use yet."""
    cancel = Button(Command.CANCEL, "Cancel", hint="The rest is not submitted, and results of the sample stay.")
    if not stats.resting:
        return (cancel,)
    fix: tuple[Button, ...] = ()
    if stats.counts.dead:
        fix = _retries(stats, focus) if focus.newer else (_fix_button(stats, focus)._replace(primary=False),)
    go = Button(Command.GO, "Go", primary=True, hint="Submit the rest; what the sample has done counts.")
    more = Button(Command.REHEARSE, f"Rehearse {MORE_TRIED}", hint=f"Try {MORE_TRIED - tried} more.", n=MORE_TRIED)
    return (go, *fix, *([more] if tried < MORE_TRIED else []), cancel)


def _fix_button(stats: RunStats, focus: Focus) -> Button:
    """Return the button that comes first while the run has the code with which everything failed."""
    worst = next((one_line(each.fingerprint, 24) for each in stats.classes), "")
    hint = _edit_first(stats) if stats.all_failed else _EDIT_FIRST
    return Button(Command.FIX, FIX_AND_RETRY, primary=True, hint=hint, target=worst)


def _edit_first(stats: RunStats) -> str:
    """Return what to do before a retry of a run in which everything failed."""
    code = f"{one_line(stats.code.name, 40)} v{stats.code.version}"
    return f"All have failed with {code}. Edit its cell and run it, then retry with the new code."


def _same_code(stats: RunStats) -> str:
    """Return what resuming means for a run that paused itself because everything failed."""
    code = f"{one_line(stats.code.name, 40)} v{stats.code.version}"
    left = many(stats.counts.left, "document")
    runs = "runs" if stats.counts.left == 1 else "run"
    return f"{left} {runs} with {code}. All failed with it so far, and the run will not pause itself again."


def _buttons_of_the_end(stats: RunStats, focus: Focus) -> tuple[Button, ...]:
    results = Button(Command.RESULTS, "Results")
    if stats.all_failed and not focus.newer:
        return (_fix_button(stats, focus),)
    return (*(_retries(stats, focus) if stats.counts.dead else ()), results)


def _retries(stats: RunStats, focus: Focus) -> tuple[Button, ...]:
    """Return the buttons that retry all dead documents of a run, or a few of many first."""
    dead = stats.counts.dead
    again = _again(stats, focus)
    every = Button(Command.RETRY, f"Retry {numbers.count(dead)} with {again.code}", focus.newer, hint=again.hint)
    few = first(dead)
    return (every, *([Button(Command.RETRY, f"{few} first", n=few, hint=again.hint)] if few else []))


def _ask(face: Face, stats: RunStats, *, waits_for_go: bool) -> Ask | None:
    if waits_for_go:
        return Ask("Cancel the rest?", "What the sample has done stays.", "Keep it", "Cancel the rest")
    if stats.resting or face is Face.NO_ANSWER:
        return None
    left = stats.counts.left
    keep = "Keep it" if face in _HALTED else "Keep running"
    stay = f"{many(stats.counts.acked, 'result')} {'stays' if stats.counts.acked == 1 else 'stay'}."
    return Ask(f"Cancel {many(left, 'document')}?", stay, keep, f"Cancel {numbers.count(left)}")


def _more(stats: RunStats) -> str:
    if not stats.classes_more:
        return ""
    noun = "class" if stats.classes_more == 1 else "classes"
    way = f"%dq failed {as_word(stats.name)}"
    return f"and {numbers.count(stats.classes_more)} more {noun}, {numbers.count(stats.dead_more)} dead: {way}"
