"""Make rows of runs, before they become text, HTML or a panel: state, figures, end, and what is wrong.

Pure: takes a Snapshot, knows no toolkit.

"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dqlab import numbers
from dqlab.live.style import Ink
from dqlab.stats import Attention, RunState, RunStats, Snapshot
from dqlab.stats.runs import setup_words
from dqlab.texts import one_line

AT_WORK, WHOLE_RUN, LAST_MINUTE = "60 s at work", "whole run", "last 60 s"
"""The times that rates cover, in the words of all views: of a run, of an ended run, of queues and consumers."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as a row."""

    name: str
    queue: str
    """Exact, as `name`: not fit for a line."""
    state: str
    """One or two words."""
    ink: Ink
    """What they mean: a run with dead documents is never green."""
    why: str
    """What needs the user; "" for nothing."""
    share: str
    end: str
    """"in 12 min", or the time of day when a run ended."""
    dead: int
    lost: int
    speed: str
    unit: str
    code: str
    took: str
    done: float | None
    """Settled share, 0 to 1; None while the total is unknown."""
    rate: float | None
    """The figure of `speed`, in `unit` per second: at work, and for an ended run over all of it."""
    over: bool
    """It has ended, or rests."""
    started: float
    """Seconds since 1970 UTC."""
    left: str
    due: str
    """The time of day of the end."""
    setup: str
    """How long a slot makes ready; "" for no time to speak of."""
    owner: str


def run_rows(snapshot: Snapshot) -> tuple[RunRow, ...]:
    """Return the listed runs of a Snapshot as rows, in order."""
    return runs_in_order(snapshot.runs, snapshot.attention)


def runs_in_order(runs: Iterable[RunStats], attention: Sequence[Attention] = ()) -> tuple[RunRow, ...]:
    """Return runs as rows, those that need the user first, with `attention` worst first."""
    needs: dict[tuple[str, str], Attention] = {}
    for each in attention:
        if each.run:
            needs.setdefault((each.queue, each.run), each)
    # Alerts without a queue are matched by name alone.
    rows = [_row(run, needs.get((run.queue, run.name)) or needs.get(("", run.name))) for run in runs]
    return tuple(sorted(rows, key=_by_need))


def without_live(run: RunStats) -> RunStats:
    """Return a run without speed and estimate, which hold only while numbers arrive."""
    return run if run.resting else replace(run, rate=None, units_rate=None, eta=None)


def run_word(run: RunStats) -> tuple[str, Ink]:
    """Return the state of a run in one or two words, and their ink."""
    counts = run.counts
    if run.empty:
        return "empty", Ink.QUIET
    if run.state is RunState.DONE and counts.dead:
        return ("some dead" if counts.acked else "all dead"), Ink.BAD
    if run.state is RunState.DONE and counts.lost:
        return "some lost", Ink.BAD
    if run.state is RunState.DONE:
        return "done", Ink.GOOD
    if run.rehearsed:
        return "rehearsed", Ink.WARN
    # Only a stuck document is left: the run waits for it.
    if run.stuck:
        return RunState.WAITING.value, Ink.WARN
    calm = run.state in (RunState.RUNNING, RunState.SUBMITTING, RunState.FOLLOWING) or (
        run.resting and run.state is RunState.CANCELLED
    )
    bad = run.state is RunState.STOPPED or (run.resting and not calm and bool(counts.dead or counts.lost))
    return run.state.value, Ink.BAD if bad else Ink.PLAIN if calm else Ink.WARN


def _row(run: RunStats, need: Attention | None) -> RunRow:
    state, ink = run_word(run)
    rate, unit = _speed(run)
    code = "" if run.code.name == "?" else f"{one_line(run.code.name, 40)} {run.code.words}"
    return RunRow(
        name=run.name,
        queue=run.queue,
        state=state,
        ink=ink,
        why=_why(run, need),
        share=numbers.share(run.share),
        end=_end(run),
        dead=run.counts.dead,
        lost=run.counts.lost,
        speed=numbers.speed(rate, unit),
        unit=unit,
        code=code,
        took=numbers.span(run.elapsed) if run.started else numbers.UNKNOWN,
        done=run.share,
        rate=rate,
        over=run.resting,
        started=run.started,
        left=left_in_words(run),
        due=_due(run),
        setup=setup_words(run.setup, "{}"),
        owner=run.owner,
    )


def speeds_over(rows: Iterable[RunRow]) -> str:
    """Return the time that the speeds of runs cover, and "" where no speed is known."""
    over = {row.over for row in rows if row.rate is not None}
    if len(over) == 2:
        return f"{AT_WORK}, of ended runs the {WHOLE_RUN}"
    return "" if not over else WHOLE_RUN if True in over else AT_WORK


def put_off_words(run: RunStats) -> str:
    """Return how many documents of a run its function has put off."""
    return f"{numbers.many(run.put_off, 'document')} put off by {'its' if run.put_off == 1 else 'their'} function"


def _why(run: RunStats, need: Attention | None) -> str:
    if need is None and run.only_put_off and not run.why:
        return put_off_words(run)
    if need is None:
        return "" if run.resting else one_line(run.why, 100)
    return one_line(" ".join(part for part in (need.subject, need.text) if part != run.name), 100)


def _speed(run: RunStats) -> tuple[float | None, str]:
    """Return the speed of a run, and its unit."""
    if run.resting:
        rates = run.mean_rate, run.mean_units_rate
    else:
        rates = run.rate, run.units_rate
    return rates[run.units is not None], run.unit


def left_in_words(run: RunStats) -> str:
    """Return what is left of a run; of empty files, which count as one byte each, the number."""
    left, documents = run.progress.left, run.counts.left
    empty = run.unit == "bytes" and 0 < left <= documents
    return numbers.many(documents, "document") if empty else numbers.amount(left, run.unit)


def _end(run: RunStats) -> str:
    if run.resting:
        return numbers.UNKNOWN if run.ended is None else numbers.moment(run.ended, now=run.at)
    if run.eta is None:
        return numbers.UNKNOWN
    return f"in {numbers.ahead(run.eta.p10 - run.at, run.eta.p50 - run.at, run.eta.p90 - run.at)}"


def _due(run: RunStats) -> str:
    if run.resting or run.eta is None:
        return _end(run)
    return numbers.due(run.eta.p50, now=run.at)


def _by_need(row: RunRow) -> tuple[int, float]:
    if not row.over:
        place = 0 if row.ink is Ink.BAD or row.why else 1
    else:
        place = 2 if row.ink is Ink.BAD else 3
    return place, -row.started
