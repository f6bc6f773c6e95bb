"""Show runs, results and failures wherever Python runs.

`register_formatters` registers our objects with IPython by dotted name: nothing here imports them, and they carry no
display code. `watch` follows a run: a live widget in Jupyter, HTML refreshed in place where widgets cannot be drawn, a
screen in a terminal, plain lines into a pipe.

`Mode` decides how much is live: `set_mode`, or the environment variable ``DQLAB_DISPLAY``.

"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO, cast
from weakref import WeakKeyDictionary, ref

from dqlab.errors import BadOption, DqlabError, DqlabWarning
from dqlab.live.canvases import (
    HtmlCanvas,
    LooseCanvas,
    View,
    WidgetCanvas,
    bundle,
    draws_widgets,
    follow_here,
    has_a_reader,
    missing,
    not_built,
    screen,
)
from dqlab.live.follow import CALL_TIMEOUT, Canvas, Live, following
from dqlab.live.layout import checkup_parts, compared_parts, ended_line, snapshot_parts, timeline_parts
from dqlab.live.next_lines import is_lab, is_queue
from dqlab.live.parts import Part, Table
from dqlab.live.render import render_html, render_text
from dqlab.live.style import PLAIN, TextStyle
from dqlab.live.tables import (
    failures_table,
    leases_table,
    listing_table,
    results_table,
    rows_table,
    runs_table,
)
from dqlab.live.ticker import shared
from dqlab.live.views import Press, RunView
from dqlab.notebook import in_jupyter, running_cell, shell
from dqlab.stats import RunStats

if TYPE_CHECKING:
    from dqlab.runs.run import Run

_ends_on_view: WeakKeyDictionary[Run, float | None] = WeakKeyDictionary()
"""End times of the runs that a live view of this notebook has drawn to their end."""
_composed: WeakKeyDictionary[object, tuple[ref[Live[Any]], Any]] = WeakKeyDictionary()
"""By source: the widget that the user placed, and the view that updates it."""


class InCell:
    """Remember the source of the last act until another cell runs."""

    def __init__(self) -> None:
        self._noted: tuple[object, int | None] | None = None

    def note(self, source: object) -> None:
        """Note that the act happened in this cell."""
        self._noted = source, running_cell()

    def holds(self, source: object) -> bool:
        """Return whether the last act was about this source and happened in this cell."""
        return self._noted is not None and self._noted[0] is source and self._noted[1] == running_cell()


_concluded = InCell()
"""The end of this run was printed in a line: it is not drawn as the value of the cell."""
ended_in_view = InCell()
"""The view of a wait has left that line: it is not printed."""


class Mode(StrEnum):
    """How runs are shown."""

    LIVE = "live"
    """Moving, where it can be."""
    STATIC = "static"
    """One picture, as HTML in Jupyter."""
    TEXT = "text"
    """Text only."""


_chosen: Mode | None = None


def set_mode(mode: Mode | str | None) -> None:
    """Choose how runs are shown in this process, or with None go back to ``DQLAB_DISPLAY``."""
    global _chosen
    _chosen = None if mode is None else _checked(mode, "display")


def mode() -> Mode:
    """Return how runs are shown now."""
    return _chosen or _checked(os.environ.get("DQLAB_DISPLAY") or Mode.LIVE, "DQLAB_DISPLAY")


def _checked(value: str, name: str) -> Mode:
    try:
        return Mode(value)
    except ValueError:
        raise BadOption(option=name, value=value, problem="write 'live', 'static' or 'text'.") from None


def watch(source: Any, *, stream: TextIO | None = None) -> None:
    """Show a run while it runs, or a lab or a queue while it is open."""
    # In Jupyter this returns at once, and the output stays live. In a terminal it blocks until the run rests, and
    # Ctrl-C stops watching. Neither changes the run.
    if stream is not None or not in_jupyter():
        stream = sys.stdout if stream is None else stream
        style = TextStyle.detect(stream, os.environ)
        if mode() is Mode.LIVE:
            follow_here(source, stream, style)
        else:
            stream.write(screen(_picture(source), style) + "\n")
    elif mode() is Mode.LIVE:
        _watch_in_notebook(source)
    else:
        publish(_shown(source))


def watch_in(handle: Any, source: Run, said: str = "") -> None:
    """Show a run in Jupyter in place of the output of `handle`."""

    # The output exists already: the view replaces what stands there.
    def show(data: dict[str, Any]) -> Any:
        handle.update(data, raw=True)
        return handle

    _watch_in_notebook(source, show, said)


def _watch_in_notebook(source: Any, show: Callable[[dict[str, Any]], Any] | None = None, said: str = "") -> None:
    show = show or publish
    commands, press = _presses()
    canvas: Canvas[Any] = HtmlCanvas(show)
    if sends_widgets():
        canvas = WidgetCanvas(show, press, read=has_a_reader(shell()))
    live = following(source, canvas, commands=commands, on_end=lambda stats: _note_end(source, stats), said=said)
    others = _live_views(source)
    # The first picture is drawn here: in the ticker's thread it would land under whichever cell runs then.
    if live.tick():
        # Only when it goes on: an older view of the end keeps its buttons, which a picture of the end would not have.
        for view in others:
            view.leave()
        shared().add(live)


def _presses() -> tuple[SimpleQueue[Press], Callable[[Press], None]]:
    """Return a queue of presses, and what puts a press there from any thread."""
    commands = SimpleQueue[Press]()

    def press(pressed: Press) -> None:
        commands.put(pressed)
        shared().wake()

    return commands, press


def sends_widgets() -> bool:
    """Return whether a live widget would be drawn, and warn where only the build is missing."""
    if not draws_widgets(shell()):
        return False
    file = missing()
    if file is not None:
        _warn_not_built(file)
    return file is None


@cache
def _warn_not_built(file: Path) -> None:
    """Warn once in a process."""
    # No error: the line that shows a run has acted already.
    warnings.warn(not_built(file), DqlabWarning, stacklevel=2)


def widget_of(source: Any) -> Any:
    """Return the live widget of a run, a lab or a queue for a layout of ipywidgets, the same each time."""
    placed, widget = _composed.get(source, (None, None))
    # A view that has ended, or a widget that was closed, is replaced by a new one.
    if placed is not None and widget is not None and placed() in shared().views and not widget.closed:
        return widget
    commands, press = _presses()
    canvas = LooseCanvas(press)
    # `stays`: a retry may reopen the run, and the widget is part of the user's layout until its `close()`.
    live = following(source, canvas, commands=commands, stays=True)
    goes_on = live.tick()
    # A weak reference: the view refers to its source, which is the key, and would keep the entry forever.
    _composed[source] = ref(live), canvas.widget
    if goes_on:
        shared().add(live)
    return canvas.widget


def _live_views(source: object) -> list[Live[Any]]:
    """Return the views of a source in the outputs of cells."""
    placed, _ = _composed.get(source, (None, None))
    # The widget that the user placed stands in a layout, and not in an output.
    views = [view for view in shared().views if isinstance(view, Live) and view.source is source]
    return [view for view in views if placed is None or view is not placed()]


def _note_end(source: Any, stats: RunStats) -> None:
    _ends_on_view[source] = stats.ended


def look_again(source: object) -> bool:
    """Make the live views of a source poll now, and return whether there is one."""
    views = _live_views(source)
    for view in views:
        view.look_again()
    shared().wake()
    return bool(views)


def is_on_view(source: object) -> bool:
    """Return whether the output of a cell has a live view of a run, a lab or a queue."""
    return bool(_live_views(source))


def is_watched(source: Run) -> bool:
    """Return whether this notebook has a live view of a run, or one that has drawn how it ended."""
    if _live_views(source):
        return True
    if source not in _ends_on_view:
        return False
    try:
        stats = source.snapshot(timeout=CALL_TIMEOUT).own_run
    except DqlabError:
        return False
    return stats is not None and stats.resting and stats.ended == _ends_on_view[source]


def conclude(source: Run) -> str:
    """Return in one line how a run ended, so that it is not drawn as the value of the cell."""
    _concluded.note(source)
    return in_a_line(source)


def in_a_line(source: Run) -> str:
    """Return the state of a run in one line."""
    return ended_line(cast(RunView, _picture(source)), _style())


def publish(data: dict[str, Any]) -> Any:
    """Display a MIME bundle in the cell's output, and return its handle."""
    from IPython.display import display

    return display(data, raw=True, display_id=True)


def _picture(source: Any) -> View:
    """Return one picture of a run, a lab or a queue as it is now."""
    view: View = following(source, Canvas()).once()
    return view


def _style() -> TextStyle:
    return PLAIN if in_jupyter() else TextStyle.detect(sys.stdout, os.environ)


def _shown(source: Any) -> dict[str, str]:
    data = bundle(_picture(source), _style())
    return data if mode() is not Mode.TEXT else {"text/plain": data["text/plain"]}


def text_of(value: object) -> str:
    """Return the text that a terminal shows for a value, and "" for None."""
    if value is None:
        return ""
    show = _BUNDLES.get((type(value).__module__, type(value).__qualname__))
    shown = show(value) if show is not None else None
    return repr(value) if shown is None else shown["text/plain"]


def drawn(*parts: Part) -> dict[str, str]:
    """Return parts as text and, unless only text is wanted, as HTML."""
    text = {"text/plain": render_text(parts, _style())}
    return text if mode() is Mode.TEXT else {**text, "text/html": render_html(parts)}


def _is_open(source: Any) -> bool:
    """Return whether a source can be shown: a run always, a lab or a queue until it is closed."""
    return not ((is_lab(source) or is_queue(source)) and source.closed)


def _watch_if_live(source: Any) -> None:
    if mode() is not Mode.LIVE or not in_jupyter() or not _is_open(source):
        # IPython tries the next formatter then.
        raise NotImplementedError
    if not _concluded.holds(source):
        watch(source)


def _source_bundle(source: Any, **_: object) -> dict[str, str] | None:
    return _shown(source) if _is_open(source) else None


def _bundle_of(make: Callable[[Any], Table | Iterable[Part]]) -> Callable[..., dict[str, str]]:
    """Return a formatter of values that are shown as a table, or as several parts."""

    def bundle_of(value: Any, **_: object) -> dict[str, str]:
        made = make(value)
        return drawn(*([made] if isinstance(made, Table) else made))

    return bundle_of


_BUNDLES: dict[tuple[str, str], Callable[..., dict[str, str] | None]] = {
    # By name, so that nothing here imports these classes: a class that moves needs its new name here.
    ("dqlab.runs.run", "Run"): _source_bundle,
    ("dqlab.lab", "Lab"): _source_bundle,
    ("dqlab.runs.pool", "QueuePool"): _source_bundle,
    ("dqlab.runs.reading.results", "Results"): _bundle_of(results_table),
    ("dqlab.datasets.table", "RunTable"): _bundle_of(rows_table),
    ("dqlab.runs.failures", "Failures"): _bundle_of(failures_table),
    ("dqlab.runs.compare.comparison", "Comparison"): _bundle_of(compared_parts),
    ("dqlab.runs.queue_rows", "UnackedLeases"): _bundle_of(leases_table),
    ("dqlab.stats.snapshot", "Snapshot"): _bundle_of(snapshot_parts),
    ("dqlab.stats.runs", "RunList"): _bundle_of(runs_table),
    ("dqlab.checkup.facts", "Checkup"): _bundle_of(checkup_parts),
    ("dqlab.runs.queue_rows", "Timeline"): _bundle_of(lambda timeline: timeline_parts(timeline.history)),
    ("dqlab.documents.listing", "Documents"): _bundle_of(listing_table),
}


def register_formatters(ip: Any) -> None:
    """Register formatters of our objects with an IPython shell, which may be repeated."""
    formatter = ip.display_formatter
    for (module, name), show in _BUNDLES.items():
        formatter.mimebundle_formatter.for_type_by_name(module, name, show)
    for module, name in (("dqlab.runs.run", "Run"), ("dqlab.lab", "Lab"), ("dqlab.runs.pool", "QueuePool")):
        formatter.ipython_display_formatter.for_type_by_name(module, name, _watch_if_live)
