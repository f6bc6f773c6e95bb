"""Draw runs, labs and queues, and their tables, as text.

A run is a screen of at most 80 columns, for `repr` and terminals, or one line; a lab is figures, queues and runs.
Draws a view or a `Table`; the line for pipes and logs is a part of the view (`RunView.log`).

"""

from __future__ import annotations

from dataclasses import replace

from dqlab import numbers
from dqlab.live.next_lines import lines_of, more_needs
from dqlab.live.palette import STATES, Ink
from dqlab.live.run_picture import NEAR_END
from dqlab.live.run_rows import AT_WORK, WHOLE_RUN
from dqlab.live.style import PLAIN, Span, TextStyle, columns, cut, paint
from dqlab.live.tables import Column, Table
from dqlab.live.views import Face, Need, QueuesView, RunView, Tone

__all__ = ["need_lines", "queues_screen", "run_end", "run_screen", "table_text"]

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
_BLOCKS = {"acked": "█", "dead": "▚", "lost": "▚", "leased": "▌", "ready": "░", "delayed": "░", "cancelled": "╌"}
_FAILURES = 3


def _read_later(view: RunView) -> str:
    """Return the time of the numbers where they are old or will be read later, and "" for an end."""
    if view.saved and not view.ended:
        return view.period.partition(", began")[0]
    return view.live if view.stale else ""


def run_screen(view: RunView, style: TextStyle = PLAIN) -> str:
    """Return a run as a screen of at most 80 columns and about 9 lines."""
    about = [f"{view.code} on queue {view.queue}" if view.code else view.queue and f"queue {view.queue}"]
    about += [_read_later(view) or view.consumers]
    lines = [
        [
            Span(f"{view.name}  ", Ink.STRONG),
            Span(view.chip.lower(), _FACE_INKS.get(view.face, Ink.STRONG)),
            Span(f"   {', '.join(part for part in about if part)}"),
        ]
    ]
    if view.notice.text:
        lines.append([Span(f"! {view.notice.text}", _TONES[view.notice.tone])])
    lines.append(_bar_line(view, style))
    lines += [[Span(sentence, Ink.QUIET)] for sentence in view.compact]
    lines += _figure_lines(view)
    if view.counters:
        lines.append(_counter_line(view, style))
    if view.details.needs:
        lines += need_lines(view.details.needs, view.details.needs_total, ended=bool(view.ended))
    else:
        lines += [_failure_line(view, place) for place in range(min(len(view.failures), _FAILURES))]
    return "\n".join(paint(line, style) for line in lines)


def queues_screen(view: QueuesView, style: TextStyle = PLAIN) -> str:
    """Return a lab or queue as text, with a summary line, queues, runs and what needs the user."""
    head = [Span(f"{view.name}  ", Ink.STRONG)]
    head += [Span(f"{view.chip.lower()}  ", Ink.WARN if view.tone else Ink.STRONG)] if view.chip else []
    # A long line is cut at its end. In a picture that is read later, the time of the numbers must survive that, and the
    # path of the store need not.
    about = (view.live, view.about) if view.saved or view.stale else (view.about, view.live)
    lines = [[*head, Span(" · ".join(filter(None, about)), Ink.QUIET)]]
    if view.notice.text:
        ink = {Tone.BAD: Ink.BAD, Tone.WARN: Ink.WARN}.get(view.notice.tone, Ink.PLAIN)
        lines.append([Span(f"! {view.notice.text}", ink)])
    if view.figures:
        sentences = [each.words for each in view.figures]
        lines += [[Span(", ".join(sentences[:3]))], [Span(", ".join(sentences[3:]))]]
    text = [paint(line, style) for line in lines]
    text += [table_text(table, style) for table in (view.table, view.runs_table) if table.columns]
    text += (
        [paint(line, style) for line in need_lines(view.details.needs, view.details.needs_total)]
        if view.details.needs
        else []
    )
    return "\n".join(text)


def run_end(view: RunView, style: TextStyle = PLAIN) -> str:
    """Return in one line of any width how a run ended."""
    state = Span(view.chip.lower(), _FACE_INKS.get(view.face, Ink.STRONG))
    line = [Span(f"{view.name}  ", Ink.STRONG), state, Span(f"  {view.sentence or view.notice.text}")]
    return paint(line, replace(style, width=max(style.width, columns("".join(span.text for span in line)))))


def table_text(table: Table, style: TextStyle = PLAIN) -> str:
    """Return a table with columns as wide as needed, as far as the style has room."""
    if not table.rows:
        return "\n".join(
            [*(paint([Span(note)], style) for note in table.notes), *(f"  {line}" for line in table.lines)]
        )
    columns_of, body = list(table.columns), [*table.rows, *([table.total] if table.total else [])]
    widths = [
        max(columns(column.title), *(columns(row[place].text) for row in body))
        for place, column in enumerate(columns_of)
    ]
    while columns_of[-1].spare and sum(widths) > style.width - 2 * (len(widths) - 1):
        del columns_of[-1], widths[-1]
    _fit(widths, style.width - 2 * (len(widths) - 1), columns_of)
    lines = [
        [
            _place(column.title, width, Ink.QUIET, right=column.right)
            for column, width in zip(columns_of, widths, strict=True)
        ]
    ]
    for row in body:
        ink = Ink.STRONG if row is table.total else Ink.PLAIN
        # Not strict: a row still has the columns that were left out above.
        cells = zip(row, columns_of, widths, strict=False)
        lines.append([_place(cell.text, width, cell.ink or ink, right=column.right) for cell, column, width in cells])
    notes = [paint([Span(note, Ink.QUIET)], style) for note in table.notes]
    place = len(lines) - 1 if table.total else len(lines)
    painted = [paint(_join(line), style) for line in lines]
    return "\n".join(
        [
            *painted[:place],
            *(notes if table.total else []),
            *painted[place:],
            *([] if table.total else notes),
            *(f"  {line}" for line in table.lines),
        ]
    )


def _fit(widths: list[int], room: int, of: list[Column]) -> None:
    # Words shrink first, then names that people type, figures last: a cut figure would be a wrong one.
    words = [place for place, column in enumerate(of) if not column.right and not column.whole]
    for givers in (words, [place for place, column in enumerate(of) if not column.right], range(len(of))):
        while sum(widths) > room and givers:
            widest = max(givers, key=widths.__getitem__)
            if widths[widest] <= 8:
                break
            widths[widest] -= 1


def _place(text: str, width: int, ink: Ink, *, right: bool) -> Span:
    shown = cut(text, width)
    pad = " " * (width - columns(shown))
    return Span(pad + shown if right else shown + pad, ink)


def _join(spans: list[Span]) -> list[Span]:
    joined = [spans[0]]
    for span in spans[1:]:
        joined += [Span("  "), span]
    return joined


def _bar_line(view: RunView, style: TextStyle) -> list[Span]:
    unit = f" of {view.unit}" if view.unit else ""
    room = style.width - 8 - columns(unit) - 1 - (0 if style.unicode else 2)
    pieces = []
    for bar, cells in zip(view.bars, _cells([bar.fraction for bar in view.bars], room), strict=True):
        state = STATES[bar.state]
        character = _BLOCKS[bar.state] if style.unicode else state.mark
        pieces.append(Span(character * cells, Ink.GONE if view.stale else state.ink))
    if not pieces:
        pieces = [Span(("╌" if style.unicode else " ") * room, Ink.GONE)]
    edges = (Span(""), Span("")) if style.unicode else (Span("["), Span("]"))
    return [Span(f"{view.percent:>7} ", Ink.STRONG), edges[0], *pieces, edges[1], Span(unit)]


def _cells(fractions: list[float], room: int) -> list[int]:
    """Share out cells so that every piece gets one, and the largest absorbs the rounding."""
    cells = [max(1, round(fraction * room)) for fraction in fractions]
    if cells:
        largest = cells.index(max(cells))
        cells[largest] = max(1, cells[largest] + room - sum(cells))
    return cells


def _figure_lines(view: RunView) -> list[list[Span]]:
    if len(view.figures) != 4:
        return []
    left, done, speed, dead = view.figures
    over = WHOLE_RUN if speed.label.endswith(WHOLE_RUN) else AT_WORK if speed.value != numbers.UNKNOWN else ""
    ended = f" {done.second}" if done.second.startswith("after ") and done.value != numbers.UNKNOWN else ""
    near = done.label == NEAR_END
    ended = "" if near else f" ({view.band})" if view.band else ended
    return [
        [
            Span(_field(f"left   {left.value} {left.unit}", 25)),
            Span(_field(left.second, 22)),
            Span("done  "),
            Span(f"in {done.value} {done.unit}" if near else done.value, Ink.STRONG),
            Span(ended),
        ],
        [
            Span(_field(f"speed  {speed.value} {speed.unit}", 25)),
            Span(_field(over or speed.second, 22)),
            Span("dead  "),
            Span(dead.value, _TONES[dead.tone]),
            Span(f" ({dead.second})"),
        ],
    ]


def _field(text: str, width: int) -> str:
    return f"{text:<{width - 2}}  "


def _counter_line(view: RunView, style: TextStyle) -> list[Span]:
    line: list[Span] = []
    for counter in view.counters:
        state = STATES[counter.state]
        glyph = f"{state.glyph} " if style.unicode else ""
        line.append(Span("  " if line else ""))
        if counter.zero:
            line.append(Span(f"{glyph}{counter.word} 0", Ink.QUIET))
        else:
            line += [Span(f"{glyph}{counter.word}", state.ink), Span(f" {counter.documents}")]
    return line


def need_lines(needs: tuple[Need, ...], total: int, *, ended: bool = False) -> list[list[Span]]:
    """Return the lines about what needs the user, how many more there are, and what to type."""
    width = max(columns(each.subject) for each in needs)
    lines = []
    for each in needs:
        bad = each.tone == "bad"
        subject, what = cut(each.subject, 20), cut(each.text, 34)
        lines.append(
            [
                Span("✕ " if bad else "! ", Ink.BAD if bad else Ink.WARN),
                Span(" " * (min(width, 20) - columns(subject)) + f"{subject}  "),
                Span(what + " " * (36 - columns(what))),
                Span(each.detail, Ink.QUIET),
            ]
        )
    more = more_needs(needs, total, ended=ended)
    lines += [[Span(f"  {more}", Ink.QUIET)]] if more else []
    return lines + [[Span("  next  ", Ink.QUIET), Span(line)] for line in lines_of(needs)]


def _failure_line(view: RunView, place: int) -> list[Span]:
    row = view.failures[place]
    what = cut(f"{row.error} {row.message}", 34)
    # The head of the view names the function, so 'parse v1' becomes 'v1'.
    code = cut(row.code.rpartition(" ")[2], 6)
    where = f"{cut(row.at, 15 - columns(code))} {code}" if code else cut(row.at, 16)
    return [
        Span("✕", Ink.BAD),
        Span(f" {row.dead:>5} dead  "),
        Span(what + " " * (36 - columns(what))),
        Span(where + " " * (18 - columns(where))),
        Span(row.fingerprint, Ink.QUIET),
    ]
