"""Lay out views as parts, which text and HTML draw: a run, a lab or a queue, and what needs the user."""

from __future__ import annotations

import sys
from dataclasses import replace

from dqlab.live.next_lines import lines_of, more_needs
from dqlab.live.palette import STATES, Ink
from dqlab.live.parts import Box, Gauge, Line, Part, Steps, Title, line
from dqlab.live.run_picture import NEAR_END
from dqlab.live.run_rows import AT_WORK, WHOLE_RUN
from dqlab.live.style import PLAIN, Span, TextStyle, paint
from dqlab.live.tables import Cell, Column, Table
from dqlab.live.views import Face, Figure, Need, Notice, QueuesView, RunView, Tone
from dqlab.numbers import UNKNOWN, many
from dqlab.texts import as_word, one_line

_TONES = {Tone.PLAIN: Ink.PLAIN, Tone.QUIET: Ink.QUIET, Tone.WARN: Ink.WARN, Tone.BAD: Ink.BAD}
_FACE_INKS = {
    Face.STOPPED: Ink.BAD,
    Face.DONE_DEAD: Ink.BAD,
    Face.DONE: Ink.GOOD,
    Face.WAITING: Ink.WARN,
    Face.NO_ANSWER: Ink.WARN,
    Face.GONE: Ink.WARN,
    Face.INCOMPLETE: Ink.WARN,
}
_CLASSES = 5
"""Most failure classes that are listed."""


def parts_of(view: RunView | QueuesView) -> tuple[Part, ...]:
    """Return the parts of a view."""
    return tuple(_run(view) if isinstance(view, RunView) else _queues(view))


def ended_line(view: RunView, style: TextStyle = PLAIN) -> str:
    """Return in one line of any width how a run ended."""
    name, state = Span(f"{view.name}  ", Ink.STRONG), Span(view.chip.lower(), _ink(view))
    return paint((name, state, Span(f"  {view.sentence or view.notice.text}")), replace(style, width=sys.maxsize))


def log_line(view: RunView | QueuesView) -> str:
    """Return a view in one line for pipes and logs, as "14:22:07 parse running 65.4 % left 48,210 pages ..."."""
    state = (view.chip.lower(), view.percent) if isinstance(view, RunView) else (view.chip.lower(),)
    figures = [f"{figure.label.partition(',')[0].lower()} {figure.value} {figure.unit}" for figure in view.figures]
    words = (view.moment or "-", view.name, *state, *figures, view.notice.text)
    return " ".join(word.strip() for word in words if word)


def needs_table(needs: tuple[Need, ...], total: int, *, ended: bool = False) -> Table:
    """Return what needs the user, how much more there is, and what to type."""
    rows = tuple(
        (
            Cell("✕", Ink.BAD) if each.tone == "bad" else Cell("!", Ink.WARN),
            Cell(each.subject),
            Cell(each.text),
            Cell(each.detail, Ink.QUIET),
        )
        for each in needs
    )
    more = more_needs(needs, total, ended=ended)
    columns = (Column("", whole=True), Column("", whole=True), Column(""), Column(""))
    return Table(columns, rows, notes=(more,) if more else (), lines=tuple(lines_of(needs)))


def _run(view: RunView) -> list[Part]:
    parts: list[Part] = [Title(view.name, view.chip.lower(), _about(view), _ink(view)), *_notice(view.notice)]
    parts.append(Gauge(view.percent, view.unit, view.bar_label, view.bars, view.stale))
    parts += [line(sentence, Ink.QUIET) for sentence in view.compact]
    if view.ended and view.sentence:
        parts.append(line(view.sentence))
    if len(view.figures) == 4:
        parts.append(_figures(view))
    if view.counters:
        parts.append(_counters(view))
    if view.details.needs:
        parts.append(needs_table(view.details.needs, view.details.needs_total, ended=bool(view.ended)))
    elif view.failures:
        parts.append(_failures(view))
    # A run that exists no more cannot be attached.
    if view.saved and view.code and view.face is not Face.GONE:
        parts.append(Steps((f"%dq attach {as_word(view.name)} -o {view.variable or 'run'}",), "Back to it:"))
    return parts


def _ink(view: RunView) -> Ink:
    return _FACE_INKS.get(view.face, Ink.STRONG)


def _about(view: RunView) -> str:
    """Return code and queue, and the consumers, or the time of the numbers where these are old or read later."""
    later = view.period.partition(", began")[0] if view.saved else view.live if view.stale else view.consumers
    code = f"{view.code} on queue {view.queue}" if view.code else view.queue and f"queue {view.queue}"
    return ", ".join(part for part in (code, later) if part)


def _queues(view: QueuesView) -> list[Part]:
    # A long line is cut at its end. In a picture that is read later, the time of the numbers must survive that, and the
    # path of the store need not.
    about = (view.live, view.about) if view.saved or view.stale else (view.about, view.live)
    ink = Ink.WARN if view.tone else Ink.STRONG
    parts: list[Part] = [Title(view.name, view.chip.lower(), " · ".join(filter(None, about)), ink)]
    parts += _notice(view.notice)
    parts += [_sentence(view.figures[at : at + 3]) for at in range(0, len(view.figures), 3)]
    parts += [table for table in (view.table, view.runs_table) if table.columns]
    needs = view.details.needs
    return [*parts, *([needs_table(needs, view.details.needs_total)] if needs else [])]


def _notice(notice: Notice) -> list[Part]:
    return [Box(notice.text, _TONES[notice.tone])] if notice.text else []


def _sentence(figures: tuple[Figure, ...]) -> Line:
    """Return some figures as a sentence."""
    spans: list[Span] = []
    for figure in figures:
        label, comma, span = figure.label.lower().partition(", ")
        rest = " ".join(part for part in ("", figure.unit, f"({figure.extra})" if figure.extra else "") if part)
        spans += [Span(f"{', ' if spans else ''}{label} "), Span(figure.value, Ink.STRONG)]
        spans.append(Span(f"{' ' if rest else ''}{rest}{comma}{span}"))
    return Line(tuple(spans))


def _figures(view: RunView) -> Table:
    """Return what is left, when it is done, the speed and what is dead."""
    left, done, speed, dead = view.figures
    over = WHOLE_RUN if speed.label.endswith(WHOLE_RUN) else AT_WORK if speed.value != UNKNOWN else ""
    near = done.label == NEAR_END
    ended = f" {done.second}" if done.second.startswith("after ") and done.value != UNKNOWN else ""
    ended = f" ({view.band})" if view.band else ended
    rows = (
        ("left", f"{left.value} {left.unit}", left.second, "done"),
        ("speed", f"{speed.value} {speed.unit}", over or speed.second, "dead"),
    )
    ends = (
        Cell(f"in {done.value} {done.unit}" if near else f"{done.value}{ended}", Ink.STRONG),
        Cell(f"{dead.value} ({dead.second})", _TONES[dead.tone]),
    )
    columns = (Column("", whole=True),) * 5
    return Table(columns, tuple((*map(Cell, row), end) for row, end in zip(rows, ends, strict=True)))


def _counters(view: RunView) -> Line:
    spans: list[Span] = []
    for counter in view.counters:
        state = STATES[counter.state]
        name, documents = f"{state.glyph} {counter.word}", f" {counter.documents}"
        spans.append(Span("  " if spans else ""))
        if counter.zero:
            spans.append(Span(name + documents, Ink.QUIET))
        else:
            spans += [Span(name, state.ink), Span(documents)]
    return Line(tuple(spans))


def _failures(view: RunView) -> Table:
    shown = view.failures[:_CLASSES]
    known = any(row.document != UNKNOWN for row in shown)
    columns: tuple[Column, ...] = (Column("dead", right=True), Column("failure"), Column("raised at", mono=True))
    columns += (Column("one of them", mono=True, spare=True),) if known else ()
    rows = []
    for row in shown:
        dead = Cell(row.dead, Ink.QUIET if row.dead == "0" else Ink.BAD)
        at = ", ".join(part for part in (row.at, row.code) if part)
        cells = (dead, Cell(one_line(f"{row.error} {row.message}", 80)), Cell(at))
        rows.append((*cells, Cell(one_line(row.document, 60))) if known else cells)
    hidden = len(view.failures) - _CLASSES
    classes = many(hidden, "class").replace(" ", " more ")
    more = f"and {classes}, listed by %dq failed {as_word(view.name)}" if hidden > 0 else ""
    return Table(columns, tuple(rows), notes=tuple(note for note in (more, view.more) if note))
