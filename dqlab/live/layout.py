"""Lay out views as parts, which text and HTML draw: a run, a lab or a queue, and what needs the user."""

from __future__ import annotations

import sys
from dataclasses import replace

from dqlab.live.next_lines import lines_of, more_needs
from dqlab.live.palette import STATES, Ink
from dqlab.live.parts import Box, Gauge, Line, Medium, Only, Part, Steps, Title, line
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
    code = view.details.code.caption if view.details.code is not None else view.code
    about = [text for text in (code, view.queue and f"queue {view.queue}", view.consumers) if text]
    parts: list[Part] = [
        Only(Medium.TEXT, (Title(view.name, view.chip.lower(), _screen_about(view), _ink(view)),)),
        Only(Medium.HTML, (Title(view.name, _share(view), view.period or view.live, _ink(view)),)),
    ]
    if view.sentence:
        parts.append(Only(Medium.HTML, (line(view.sentence),)))
    parts += _notice(view.notice)
    parts.append(Gauge(view.percent, view.unit, view.bar_label, view.bars, view.stale))
    parts += [line(sentence, Ink.QUIET) for sentence in view.compact]
    parts.append(Only(Medium.TEXT, tuple(_figures(view))))
    if view.counters:
        parts += [Only(Medium.TEXT, (_counters_line(view),)), Only(Medium.HTML, (_counters_table(view),))]
    needs = view.details.needs
    if needs:
        parts.append(needs_table(needs, view.details.needs_total, ended=bool(view.ended)))
    if view.failures and not needs:
        parts.append(_failures(view))
    elif view.failures and not view.ended:  # what needs the user of an ended run are its failures
        parts.append(Only(Medium.HTML, (_failures(view),)))
    # A run that exists no more cannot be attached.
    if about:
        lines = () if view.face is Face.GONE else (f"%dq attach {as_word(view.name)} -o {view.variable or 'run'}",)
        back: tuple[Part, ...] = (line(" · ".join(about), Ink.QUIET), Steps(lines, "Back to it:"))
        parts.append(Only(Medium.HTML, back))
    return parts


def _ink(view: RunView) -> Ink:
    return _FACE_INKS.get(view.face, Ink.STRONG)


def _share(view: RunView) -> str:
    """Return the state with the settled share."""
    known = view.bars and view.percent not in ("", "100 %", UNKNOWN)
    return f"{view.chip.lower()}, {view.percent} of {view.unit}" if known else view.chip.lower()


def _screen_about(view: RunView) -> str:
    """Return code, queue and consumers, or the time of the numbers where they are old or will be read later."""
    later = view.live if view.stale else ""
    if view.saved and not view.ended:
        later = view.period.partition(", began")[0]
    code = f"{view.code} on queue {view.queue}" if view.code else view.queue and f"queue {view.queue}"
    return ", ".join(part for part in (code, later or view.consumers) if part)


def _queues(view: QueuesView) -> list[Part]:
    # A long line is cut at its end. In a picture that is read later, the time of the numbers must survive that, and the
    # path of the store need not.
    about = (view.live, view.about) if view.saved or view.stale else (view.about, view.live)
    ink = Ink.WARN if view.tone else Ink.STRONG
    parts: list[Part] = [Title(view.name, view.chip.lower(), " · ".join(filter(None, about)), ink)]
    parts += _notice(view.notice)
    parts += [_sentence(view.figures[at : at + 3]) for at in range(0, len(view.figures), 3)]
    tables = [table for table in (view.table, view.runs_table) if table.columns]
    if not view.details.needs:
        return [*parts, *tables]
    # A page is read from its top, and a terminal from its last line.
    needs = (needs_table(view.details.needs, view.details.needs_total),)
    return [*parts, Only(Medium.HTML, needs), *tables, Only(Medium.TEXT, needs)]


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


def _figures(view: RunView) -> list[Line]:
    """Return what is left, when it is done, the speed and what is dead, in two lines of four columns."""
    if len(view.figures) != 4:
        return []
    left, done, speed, dead = view.figures
    over = WHOLE_RUN if speed.label.endswith(WHOLE_RUN) else AT_WORK if speed.value != UNKNOWN else ""
    near = done.label == NEAR_END
    ended = f" {done.second}" if done.second.startswith("after ") and done.value != UNKNOWN else ""
    ended = f" ({view.band})" if view.band else ended
    first = f"left   {left.value} {left.unit}"
    second = f"speed  {speed.value} {speed.unit}"
    return [
        Line(
            (
                Span(f"{first:<23}  {left.second:<20}  done  "),
                Span(f"in {done.value} {done.unit}" if near else done.value, Ink.STRONG),
                Span("" if near else ended),
            )
        ),
        Line(
            (
                Span(f"{second:<23}  {over or speed.second:<20}  dead  "),
                Span(dead.value, _TONES[dead.tone]),
                Span(f" ({dead.second})"),
            )
        ),
    ]


def _counters_line(view: RunView) -> Line:
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


def _counters_table(view: RunView) -> Table:
    paged = any(counter.pages for counter in view.counters)
    heads = ("documents", "share", *((view.unit,) if paged else ()))
    rows = []
    for counter in view.counters:
        ink = Ink.QUIET if counter.zero else Ink.PLAIN
        figures = (counter.documents, counter.share, *((counter.pages,) if paged else ()))
        rows.append((Cell(counter.word, ink, state=counter.state), *(Cell(text, ink) for text in figures)))
    return Table((Column("state"), *(Column(head, right=True) for head in heads)), tuple(rows))


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
