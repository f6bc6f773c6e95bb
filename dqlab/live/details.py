"""Turn a Snapshot and a History into the part below the figures: needs, failures, consumers, leases, chart, code.

Computes nothing but the marks of a time axis. Users' text leaves here fit for one line, or for a block of code, but not
escaped.

"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from dqlab import numbers
from dqlab.live.next_lines import CANARY, first, next_line
from dqlab.live.run_rows import LAST_MINUTE
from dqlab.live.views import (
    Chart,
    ChartMark,
    CodePane,
    ConsumerRow,
    Consumers,
    Example,
    FailureRow,
    HeldRow,
    Leases,
    Need,
)
from dqlab.notebook import with_cells
from dqlab.numbers import many
from dqlab.stats import (
    AGE_EDGES,
    Attention,
    AttentionKind,
    ClassStats,
    CodeStats,
    Eta,
    Held,
    History,
    RunStats,
    Severity,
    Snapshot,
)
from dqlab.texts import block, one_line

NEAR = 120.0
"""Seconds below which an end is shown in seconds."""
MOST_NEEDS = 3
_VERSIONS = 3
_TICKS = (1 / 12, 0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080)
"""Minutes between two times of day below a chart."""
_MOST_TICKS = 6
FIX_AND_RETRY = "Fix & retry…"
_LABELS = {"retry": FIX_AND_RETRY, "show": "Show", "resume": "Resume", "scale": "Scale…", "compact": "Compact"}


class Again(NamedTuple):
    """A retry that can be offered."""

    code: str
    """The code that the retry takes."""
    hint: str
    """What to know about it."""
    mend: str = ""
    """What to do first: until then, the retry is of no use."""


def needs(
    lines: Sequence[Attention],
    actions: Collection[str],
    limit: int = MOST_NEEDS,
    *,
    # With several runs on view each line names its own. `mended` is newer code of the notebook for a retry.
    several: bool = False,
    mended: str = "",
) -> tuple[Need, ...]:
    """Return the worst lines about what needs the user, each with its action if that is among `actions`."""
    return tuple(
        _need(line, line.action if line.action in actions else "", several=several, mended=mended)
        for line in lines[:limit]
    )


def _need(line: Attention, action: str, *, several: bool, mended: str) -> Need:
    dead = line.severity is Severity.PROBLEM
    again = f"Retry {numbers.count(line.amount)} with {mended}" if mended and line.amount and action == "retry" else ""
    # With many documents the pane opens first: it offers to retry a few of them.
    ready = bool(again) and line.amount <= CANARY
    named = several and line.run and line.run not in f"{line.subject} {line.text}".replace(",", " ").split()
    pane = {"retry": "failures", "show": "leases" if line.kind == AttentionKind.HELD else "consumers"}.get(action, "")
    return Need(
        key=one_line(f"{line.kind} {line.queue} {line.run} {line.target}", 200),
        tone="bad" if dead else "warn",
        icon="dead" if dead else "slow" if pane in ("leases", "consumers") else "warn",
        subject=one_line(line.subject, 60),
        text=one_line(line.text, 120),
        detail=one_line(f"{line.run} · {line.detail}" if named else line.detail, 160),
        action=action,
        label=f"{again}{'' if ready else '…'}" if again else _LABELS.get(action, ""),
        pane=pane,
        queue=line.queue,
        line=next_line(line),
        run=line.run,
        target=one_line(line.target, 60),
        ready=ready,
    )


def consumers(snapshot: Snapshot, total: int, *, ended_on: str = "") -> Consumers | None:
    """Return the table of the slowest consumers, or None when there are none."""
    listed = snapshot.consumers
    if not listed and not total:
        return None
    fastest = snapshot.fastest_units_rate or 1.0
    rows = [
        ConsumerRow(
            name=one_line(each.name, 40),
            worker=one_line(each.worker, 40),
            fraction=round((each.units_rate or 0.0) / fastest, 3),
            units_rate=numbers.rate(each.units_rate),
            rate=numbers.rate(each.rate),
            idle=numbers.share(each.idle_share, places=0),
            leased=numbers.count(each.leased),
            oldest=numbers.UNKNOWN if each.oldest_age is None else held_for(each.oldest_age),
            memory=numbers.size(each.rss),
            error=numbers.UNKNOWN if each.last_error is None else one_line(each.last_error, 60),
            trouble=each.trouble,
            document=one_line(each.shown_document, 120),
        )
        for each in listed
    ]
    caption = f"Slowest first · {LAST_MINUTE}"
    # The consumers of an ended run work for other runs now, or for none: their figures are not its own.
    if ended_on:
        caption = f"Of queue {one_line(ended_on, 40)}, now that this run has ended · {caption[0].lower()}{caption[1:]}"
    if snapshot.median_units_rate is not None:
        caption += f" · median {numbers.rate(snapshot.median_units_rate)} {snapshot.units}/s"
    hidden = max(0, total - len(listed))
    return Consumers(
        title=numbers.count(total),
        troubles="" if ended_on else snapshot.consumer_troubles,
        caption=caption,
        unit=f"{snapshot.units}/s",
        rows=tuple(rows),
        more=f"and {numbers.count(hidden)} more, all of them faster" if hidden and listed else "",
    )


def held_for(seconds: float, units: int = 2) -> str:
    """Return the time that something was held, in whole seconds."""
    return f"{int(seconds)} s" if seconds < 60 else numbers.duration(seconds, units=units)


def age_of(held: Held) -> str:
    """Return the age of what a consumer holds, in words where only the age of the lease is known."""
    return held_for(held.age) if held.running is not None else f"{held_for(held.age)} since delivery"


def _held_what(held: Held) -> str:
    """Return the name of what a consumer holds."""
    what = one_line(held.document or many(held.messages, "message"), 120)
    # The age has no room for these words, so the name carries them: without a start, the age is that of the lease.
    return what if held.running is not None else f"{what}, since delivery"


def _ages(low: float, high: float) -> str:
    """Return a range of ages, with a common unit written once."""
    least, most = held_for(low), held_for(high)
    amount, _, unit = least.partition(" ")
    return numbers.between(amount if most.endswith(f" {unit}") else least, most)


NO_LEASES = Leases("0", "nothing is held")
"""For a run that is over."""


def leases(snapshot: Snapshot, where: str = "") -> Leases:
    """Return the table of held messages, with `where` naming a scope that is wider than the view."""
    held = snapshot.unacked
    title = f"{numbers.count(held.total)} {where}".strip()
    if held.oldest:
        title += f" · oldest {age_of(held.oldest[0])}"
    parts = []
    if held.timeout is not None:
        parts.append(f"{many(held.past, 'message')} held longer than {held_for(held.timeout)}, the visibility timeout")
    if held.ending_20s:
        parts.append(f"{many(held.ending_20s, 'lease')} about to end")
    parts.append(f"in 10 min: {numbers.count(held.redelivered_10m)} delivered again")
    parts.append(f"{many(held.leases_lost_10m, 'lease')} lost")
    edges = ["< 1 s", *(_ages(low, high) for low, high in pairwise(AGE_EDGES)), f"> {held_for(AGE_EDGES[-1])}"]
    lows = (0.0, *AGE_EDGES)
    bins = tuple(
        (word, amount, held.timeout is not None and low >= held.timeout)
        for word, amount, low in zip(edges, held.age_bins, lows, strict=False)
    )
    return Leases(title, " · ".join(parts), bins if any(held.age_bins) else (), held_rows(snapshot))


def held_rows(snapshot: Snapshot) -> tuple[HeldRow, ...]:
    """Return the leases held longest, a row for each."""
    timeout = snapshot.unacked.timeout
    return tuple(
        HeldRow(
            document=_held_what(each),
            consumer=one_line(each.consumer, 40),
            held=held_for(each.age),
            ends_in=held_for(each.ends_in, units=1),
            renewals=numbers.count(each.renewals),
            delivery=numbers.count(each.delivery),
            late=timeout is not None and each.held > timeout,
        )
        for each in snapshot.unacked.oldest
    )


def code_pane(code: CodeStats, text: str | None) -> CodePane | None:
    """Return the function that a run uses, or None when nothing is known of it."""
    if code.name == "?":
        return None
    cell = f", from cell [{code.cell}]" if code.cell is not None else ""
    short = f" ({one_line(code.short, 12)})" if code.short else ""
    before = {1: "", 2: "; before it v1"}.get(code.version, f"; before it v1 to v{code.version - 1}")
    before = f": {_credits(code.did)}" if any(code.did) else before
    note = f" · {one_line(code.note, 60)}" if code.note else ""
    caption = f"{one_line(code.name, 60)} v{code.version}{short}{note}{cell}{before}"
    return CodePane(f"v{code.version}", caption, "the source is not known" if text is None else block(text))


def _credits(did: Sequence[int]) -> str:
    """Return how many documents each version has acked, as in "v4 44,998 documents, v3 3,212"."""
    known = [(f"v{at}", acked) for at, acked in enumerate(did, 1) if acked or at == len(did)][::-1]
    named, older = known[:_VERSIONS], sum(acked for _, acked in known[_VERSIONS:])
    words = [f"{version} {numbers.count(acked)}" for version, acked in named]
    words[0] += f" {numbers.noun_of(named[0][1], 'document')}"
    return ", ".join([*words, *([f"earlier ones {numbers.count(older)}"] if older else [])])


def examples(
    fingerprint: str,
    letters: Sequence[Any],
    cell: Callable[[Any], str] = lambda letter: "",
    code: CodeStats | None = None,
) -> tuple[str, tuple[Example, ...]]:
    """Return documents of a failure class, each with the Python that opens it."""
    rows = tuple(
        Example(
            document=one_line(letter.key, 120),
            deliveries=numbers.many(letter.deliveries, "delivery"),
            version=_version(one_line(letter.version, 12), code),
            traceback=block(with_cells(letter.traceback), 4000),
            cell=cell(letter),
        )
        for letter in letters
    )
    return fingerprint, rows


def _version(short: str, code: CodeStats | None) -> str:
    """Return the version of some code as views name it."""
    # Only the newest version has a known number; older code is known by its hash alone.
    newest = code is not None and code.short and short.startswith(code.short)
    return f"v{code.version}" if newest and code is not None else f"code {short[:6]}" if short else numbers.UNKNOWN


def left_chart(stats: RunStats, history: History | None) -> Chart:
    """Return the chart of what was left over time, with the estimate of the end."""
    eta = stats.eta
    title = f"{stats.unit.capitalize()} left"
    known = [] if history is None else _whole(history.units_left)
    if history is None or not any(known):
        empty = "it ended before its line was drawn" if stats.finished else "the line begins in a moment"
        return Chart(title=title, label=title, empty=empty)
    first = next(at for at, value in enumerate(known) if value is not None)
    start = history.t0 + first * history.step
    values = known[first:]
    if stats.finished and values[-1] != stats.progress.left:
        # The last point is older than the end, and nothing is drawn after this picture.
        values.append(stats.progress.left)
    now = (len(values) - 1) * history.step
    fan = () if eta is None else tuple(round(max(now, each - start)) for each in (eta.p10, eta.p50, eta.p90))
    end = max(now, fan[-1] if fan else now) * 1.06 or 1.0
    due, between = _due(eta, stats.at)
    # As drawn, for the label: the numbers above are newer.
    amount = numbers.bare(values[-1], stats.unit)
    expected = f", zero expected at {due}, 80 percent sure: {between}" if due else ""
    return Chart(
        title=title,
        label=f"{title} over time: {amount} now{expected}",
        step=history.step,
        now=now,
        end=end,
        values=tuple(values),
        fan=fan,
        due=due,
        band=between if between != due else "",
        ticks=_ticks(start, end),
        marks=_marks(history, start, now),
    )


def depth_chart(waiting: int, history: History | None) -> Chart:
    """Return the chart of the messages waiting."""
    history = None if history is None else history.since_known()
    ready = [] if history is None else _whole(history.ready)
    if history is None or not any(value is not None for value in ready):
        return Chart(title="Messages waiting", label="Messages waiting", empty="the line begins in a moment")
    title = f"Messages waiting, last {numbers.span(history.end - history.t0)}"
    delayed = [*_whole(history.delayed), *[None] * len(ready)]
    values = [None if a is None else a + (b or 0) for a, b in zip(ready, delayed, strict=False)]
    now = (len(values) - 1) * history.step
    return Chart(
        title=title,
        label=f"{title}: {numbers.count(waiting)} now",
        step=history.step,
        now=now,
        end=now or 1.0,
        values=tuple(values),
        ticks=_ticks(history.t0, now),
        marks=_marks(history, history.t0, now),
    )


def _whole(values: Sequence[float | None]) -> list[int | None]:
    return [None if value is None else round(value) for value in values]


def _due(eta: Eta | None, now: float) -> tuple[str, str]:
    """Return when a run will end, and between which times, as exact as the axis of its chart."""
    if eta is None:
        return "", ""
    if eta.p50 - now < NEAR:
        return numbers.clock(eta.p50), numbers.between(numbers.clock(eta.p10), numbers.clock(eta.p90))
    return numbers.due(eta.p50, now=now), band(eta, now)


def band(eta: Eta, now: float) -> str:
    """Return the times of day between which a run will end, with a probability of 80 %."""
    return numbers.between(numbers.due(eta.p10, now=now), numbers.due(eta.p90, now=now))


def sure(eta: Eta, now: float) -> str:
    """Return the band in words, to the minute where both ends are the same time of day."""
    times = band(eta, now)
    return f"80 % sure: {times}" if "\N{EN DASH}" in times else "80 % sure, to the minute"


def with_pause(stats: RunStats) -> str:
    """Return the pause of a run, to stand beside its speed over all of its time, and "" without one."""
    return f"with {numbers.span(stats.paused)} paused" if stats.paused >= 1 else ""


def last_ends(stats: RunStats) -> str:
    """Return what a run waits for when only running documents are left, and "" while others wait."""
    held = stats.counts.leased
    return "" if stats.counts.waiting or not held else f"when {many(held, 'document')} {'ends' if held == 1 else 'end'}"


def _marks(history: History, start: float, now: float) -> tuple[ChartMark, ...]:
    return tuple(
        ChartMark(
            max(0.0, round(mark.at - start, 1)), "" if mark.cell is None else f"[{mark.cell}]", one_line(mark.text, 40)
        )
        for mark in history.marks
        # A mark just before the first value, such as the start, still belongs to the line.
        if -history.step <= mark.at - start <= now
    )


def _ticks(start: float, span: float) -> tuple[tuple[float, str], ...]:
    minutes = next((each for each in _TICKS if span <= each * 60.0 * _MOST_TICKS), _TICKS[-1])
    every = minutes * 60.0
    first = -(-start // every) * every
    amount = int((start + span - first) // every) + 1
    spelled = numbers.minute if minutes >= 1 else numbers.clock
    return tuple((round(first + n * every - start, 1), spelled(first + n * every)) for n in range(amount))


def failure_row(entry: ClassStats, *, at: float, again: Again | None = None) -> FailureRow:
    """Return one failure class as strings, as seen at the time `at`, with what it can be retried with."""
    seen = numbers.seen(entry.first, entry.last, now=at) if entry.first else ""
    failed = f"{many(entry.failed, 'delivery')} failed this way, " if entry.failed else ""
    return FailureRow(
        fingerprint=one_line(entry.fingerprint, 24),
        error=one_line(entry.error, 60),
        message=one_line(entry.message, 120),
        at=one_line(entry.at, 60),
        dead=numbers.count(entry.dead),
        retrying=numbers.count(entry.retrying),
        document=numbers.UNKNOWN if entry.key is None else one_line(entry.key, 120),
        code=one_line(", ".join(entry.versions), 60),
        seen=f"{failed}{seen}",
        retry=f"Retry {numbers.count(entry.dead)} with {again.code}" if entry.dead and again is not None else "",
        hint="" if again is None else again.hint,
        first=first(entry.dead) if again is not None else 0,
        mend="" if again is None or not entry.dead else again.mend,
    )
