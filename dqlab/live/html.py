"""Draw runs, labs and queues, and their tables, as HTML that needs nothing else.

Inline styles only: without script, class, image or font, the fragment looks the same in a saved notebook, on a code
host that strips styles, and in print, on light and dark pages. All users' text is escaped here.

"""

from __future__ import annotations

from html import escape

from dqlab.live.next_lines import lines_of, more_needs
from dqlab.live.palette import STATES, Ink
from dqlab.live.tables import Table
from dqlab.live.views import Face, Figure, Need, Notice, QueuesView, RunView, Tone
from dqlab.numbers import UNKNOWN, many
from dqlab.texts import as_word, one_line

__all__ = ["inked", "needs_html", "notice_html", "queues_html", "quiet", "run_html", "table_html", "wrap"]

_OUTER = (
    "font-family:system-ui,-apple-system,'Helvetica Neue',Helvetica,Arial,sans-serif;font-size:13px;line-height:1.5"
)
_HEAD = "font-weight:normal;opacity:.7;border-bottom:1px solid rgba(128,128,128,.5)"
_LINE = "border-bottom:1px solid rgba(128,128,128,.35)"
_LEFT, _RIGHT = "padding:3px 14px 3px 0;text-align:left", "padding:3px 14px 3px 0;text-align:right"
_QUIET = ' style="opacity:.7"'
_MONO = ";font-family:monospace;overflow-wrap:anywhere;min-width:10ch"
_FIGURES = "font-variant-numeric:tabular-nums"
_INKS = {Ink.BAD: "#E0533F", Ink.WARN: "#9A6200", Ink.GOOD: "#0A9F88"}
_CLASSES = 5


def run_html(view: RunView) -> str:
    """Return a run as a fragment of about 6 kB, with its period, its counts, and why documents failed."""
    state = view.chip.lower()
    if view.percent not in ("", "100 %", UNKNOWN) and view.bars:
        state += f", {view.percent} of {view.unit}"
    parts = [
        f'<div style="font-size:15px"><b>{escape(view.name)}</b> &nbsp;{escape(state)} &nbsp;'
        f'<span style="opacity:.7">{escape(view.period or view.live)}</span></div>',
    ]
    if view.sentence:
        parts.append(f'<div style="margin:2px 0 8px">{escape(view.sentence)}</div>')
    parts += notice_html(view.notice)
    parts += [f'<div style="opacity:.7">{escape(line)}</div>' for line in view.compact]
    if view.bars:
        parts.append(_bar(view))
    if view.counters:
        parts.append(_counters(view))
    parts += needs_html(view.details.needs, view.details.needs_total, ended=bool(view.ended))
    if view.failures:
        parts.append(_failures(view))
    if view.pulse.line:
        line = f'<span style="font-family:monospace">{view.pulse.line}</span>'
        parts.append(f"<div>{escape(view.pulse.title)} &nbsp;{line}&nbsp; {escape(view.pulse.scale)}</div>")
    code = view.details.code.caption if view.details.code is not None else view.code
    about = [text for text in (code, view.queue and f"queue {view.queue}", view.consumers) if text]
    if about:
        parts.append(f'<div style="opacity:.7">{escape(" · ".join(about))}</div>')
    # A run that exists no more cannot be attached.
    if about and view.face is not Face.GONE:
        back = f"%dq attach {as_word(view.name)} -o {view.variable or 'run'}"
        parts.append(f'<div style="margin-top:6px">Back to it: <code>{escape(back)}</code></div>')
    return wrap(parts, width=1100)


def queues_html(view: QueuesView) -> str:
    """Return a lab or queue as a fragment with inline styles only."""
    chip = f"{escape(view.chip.lower())} &nbsp;" if view.chip else ""
    parts = [
        f'<div style="font-size:15px"><b>{escape(view.name)}</b> &nbsp;{chip}'
        f'<span style="opacity:.7">{escape(view.subtitle)}</span></div>',
        *notice_html(view.notice),
    ]
    if view.figures:
        sentences = (_figure(each) for each in view.figures)
        parts.append(f'<div style="margin:2px 0 8px">{" · ".join(sentences)}</div>')
    parts += needs_html(view.details.needs, view.details.needs_total)
    parts += [table_html(table) for table in (view.table, view.runs_table) if table.columns]
    return wrap(parts, width=1100)


def _figure(figure: Figure) -> str:
    extra = f" ({escape(figure.extra)})" if figure.extra else ""
    return f"{escape(figure.label.lower())} <b>{escape(figure.value)}</b> {escape(figure.unit)}".rstrip() + extra


def notice_html(notice: Notice) -> list[str]:
    """Return the notice, if there is one."""
    if not notice.text:
        return []
    edge = "#E0533F" if notice.tone is Tone.BAD else "#9A6200"
    return [f'<div style="border-left:3px solid {edge};padding-left:8px">{escape(notice.text)}</div>']


def needs_html(needs: tuple[Need, ...], total: int, *, ended: bool = False) -> list[str]:
    """Return a line for each thing that needs the user, how many more there are, and what to type."""
    more = more_needs(needs, total, ended=ended)
    lines = [
        f"<div>{inked('✕' if each.tone == 'bad' else '!', Ink.BAD if each.tone == 'bad' else Ink.WARN)} "
        f"<b>{escape(each.subject)}</b> {escape(each.text)} &nbsp;{quiet(each.detail)}</div>"
        for each in needs
    ]
    lines += [f"<div>{quiet(more)}</div>"] if more else []
    return lines + [f"<div>{quiet('next')} &nbsp;<code>{escape(line)}</code></div>" for line in lines_of(needs)]


def table_html(table: Table) -> str:
    """Return a table as a fragment, with its notes below."""
    parts = []
    if table.rows:
        heads = [_th(column.title, right=column.right) for column in table.columns]
        body = []
        for row in (*table.rows, *([table.total] if table.total else [])):
            cells = [
                _td(inked(cell.text, cell.ink), right=column.right, mono=column.mono)
                for cell, column in zip(row, table.columns, strict=True)
            ]
            body.append(f"<tr>{''.join(cells)}</tr>")
        parts.append(_table(heads, body))
    parts += [f'<div style="opacity:.7">{escape(note)}</div>' for note in table.notes]
    parts += [f"<div><code>{escape(line)}</code></div>" for line in table.lines]
    return wrap(parts, width=1100)


def wrap(parts: list[str], *, width: int = 760) -> str:
    """Return parts as one fragment of at most `width` pixels."""
    return f'<div style="{_OUTER};margin-top:4px;max-width:{width}px">\n' + "\n".join(parts) + "\n</div>"


def _bar(view: RunView) -> str:
    pieces = []
    for place, bar in enumerate(view.bars):
        gap = ";margin-left:1px" if place else ""
        colour = "#888" if view.stale else STATES[bar.state].static
        pieces.append(f'<span style="flex:{bar.fraction:.5f};min-width:3px{gap};background:{colour}"></span>')
    label = escape(view.bar_label)
    return (
        f'<div role="img" aria-label="{label}" style="display:flex;height:10px;margin:0 0 10px">{"".join(pieces)}</div>'
    )


def _counters(view: RunView) -> str:
    paged = any(counter.pages for counter in view.counters)
    heads = [_th("state"), _th("documents", right=True), _th("share", right=True)]
    heads += [_th(view.unit, right=True)] if paged else []
    body = []
    for counter in view.counters:
        state = STATES[counter.state]
        glyph = state.glyph if counter.zero else f'<span style="color:{state.static}">{state.glyph}</span>'
        cells = [
            _td(f"{glyph} {counter.word}"),
            _td(counter.documents, right=True),
            _td(escape(counter.share), right=True),
        ]
        cells += [_td(counter.pages, right=True)] if paged else []
        body.append(f"<tr{_QUIET if counter.zero else ''}>{''.join(cells)}</tr>")
    return _table(heads, body)


def _failures(view: RunView) -> str:
    shown = view.failures[:_CLASSES]
    known = any(row.document != UNKNOWN for row in shown)
    heads = [
        _th("failure"),
        _th("raised at"),
        _th("dead documents", right=True),
        *([_th("one of them")] if known else []),
    ]
    body = []
    for row in shown:
        message = f'<span style="font-family:monospace">{escape(one_line(row.message, 60))}</span>'
        cells = [
            _td(f"{escape(row.error)} {message}"),
            _td(escape(", ".join(part for part in (row.at, row.code) if part)), mono=True),
            _td(inked(row.dead, Ink.QUIET if row.dead == "0" else Ink.PLAIN), right=True),
        ]
        cells += [_td(escape(one_line(row.document, 60)), mono=True)] if known else []
        body.append(f"<tr>{''.join(cells)}</tr>")
    hidden = len(view.failures) - _CLASSES
    lists = f"listed by %dq failed {as_word(view.name)}"
    note = f"and {many(hidden, 'class').replace(' ', ' more ')}, {lists}" if hidden > 0 else ""
    notes = [f'<div style="opacity:.7">{escape(text)}</div>' for text in (note, view.more) if text]
    return _table(heads, body) + "".join(notes)


def quiet(text: str) -> str:
    """Return escaped text in a muted colour."""
    return inked(text, Ink.QUIET)


def inked(text: str, ink: Ink) -> str:
    """Return escaped text in a colour."""
    safe = escape(text)
    if ink is Ink.STRONG:
        return f"<b>{safe}</b>"
    if ink is Ink.QUIET:
        return f"<span{_QUIET}>{safe}</span>"
    return f'<span style="color:{_INKS[ink]}">{safe}</span>' if ink in _INKS else safe


def _th(title: str, *, right: bool = False) -> str:
    return f'<th style="{_RIGHT if right else _LEFT};{_HEAD}">{escape(title)}</th>'


def _td(inner: str, *, right: bool = False, mono: bool = False) -> str:
    # "62.5 %" is one figure, and must not break at its space.
    whole = ";white-space:nowrap" if right and " " in inner.split(">", 1)[-1] else ""
    style = f"{_RIGHT};{_FIGURES}{whole}" if right else _LEFT
    return f'<td style="{style};{_LINE}{_MONO if mono else ""}">{inner}</td>'


def _table(heads: list[str], body: list[str]) -> str:
    return (
        '<div style="overflow-x:auto">'
        '<table style="border-collapse:collapse;margin:0 0 12px;font:inherit;color:inherit"><thead><tr>'
        f"{''.join(heads)}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )
