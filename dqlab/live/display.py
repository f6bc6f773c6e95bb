"""Showing runs, results and failures wherever Python runs.

`register_formatters` teaches IPython to show our objects by dotted name, so nothing here imports
them and they carry no display code. `watch` follows a run: a live widget in Jupyter, HTML
refreshed in place where widgets are missing, a screen in a terminal, plain lines into a pipe.

How much is live is `Mode`: `set_mode`, or the environment variable ``DQLAB_DISPLAY``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from queue import SimpleQueue
from typing import Any, TextIO
from weakref import WeakKeyDictionary

from dqlab.errors import BadOption, DqlabError
from dqlab.live.canvas import HtmlCanvas, WidgetCanvas, bundle
from dqlab.live.checkups import checkup_html, checkup_text
from dqlab.live.follow import CALL_TIMEOUT, Canvas, LiveRun
from dqlab.live.html import table_html
from dqlab.live.rows import absent_view, run_view
from dqlab.live.source import RunSource
from dqlab.live.style import PLAIN, TextStyle
from dqlab.live.tables import Table, failures_table, results_table, status_table
from dqlab.live.terminal import follow_here
from dqlab.live.text import run_end, run_screen, table_text
from dqlab.live.ticker import shared
from dqlab.live.timelines import timeline_html, timeline_text
from dqlab.live.view import Command
from dqlab.stats import RunStats

__all__ = ["Mode", "conclude", "is_watched", "mode", "register_formatters", "set_mode", "text_of", "watch"]

_ends_on_view: WeakKeyDictionary[RunSource, float | None] = WeakKeyDictionary()
"""When the runs ended whose end a live view of this notebook has drawn."""
_concluded: tuple[RunSource, int] | None = None
"""The run of which a line was said last, and in which cell."""


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
    """Choose how runs are shown in this process.

    Parameters
    ----------
    mode : {"live", "static", "text"} or None
        None goes back to ``DQLAB_DISPLAY``, or "live".

    Raises
    ------
    BadOption
        Not one of these.
    """
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


def watch(source: RunSource, *, stream: TextIO | None = None) -> None:
    """Show a run while it runs.

    In Jupyter this returns at once and the output of the cell stays live; in a terminal it blocks
    until the run rests, and Ctrl-C stops looking. Watching never changes the run.

    Parameters
    ----------
    source : RunSource
        A `Run`.
    stream : file, optional
        Write there as in a terminal, wherever this is called.
    """
    if stream is not None or not in_jupyter():
        stream = sys.stdout if stream is None else stream
        style = TextStyle.detect(stream, os.environ)
        if mode() is Mode.LIVE:
            follow_here(source, stream, style)
        else:
            stream.write(run_screen(_picture(source), style) + "\n")
    elif mode() is Mode.LIVE:
        _watch_in_notebook(source)
    else:
        _publish(_shown(source))


def _watch_in_notebook(source: RunSource) -> None:
    ticker, commands = shared(), SimpleQueue[Command]()

    def press(command: Command) -> None:
        commands.put(command)
        ticker.wake()

    canvas: Canvas = WidgetCanvas(_publish, press) if _has_anywidget() else HtmlCanvas(_publish)
    live = LiveRun(source, canvas, commands=commands, on_end=lambda stats: _note_end(source, stats))
    for view in _live_views(source):
        view.leave()
    if live.tick():  # the first picture belongs to the running cell, hence not to the ticker's thread
        ticker.add(live)


def _live_views(source: RunSource) -> list[LiveRun]:
    return [view for view in shared().views if isinstance(view, LiveRun) and view.source is source]


def _note_end(source: RunSource, stats: RunStats) -> None:
    _ends_on_view[source] = stats.ended


def is_watched(source: RunSource) -> bool:
    """Return whether this notebook has a live view of a run, or one that has drawn how it ended."""
    if _live_views(source):
        return True
    if source not in _ends_on_view:
        return False
    try:
        stats = source.stats(timeout=CALL_TIMEOUT)
    except DqlabError:
        return False
    return stats.resting and stats.ended == _ends_on_view[source]


def conclude(source: RunSource) -> str:
    """Return in one line how a run ended, in place of a second picture: as the value of this cell it shows no more."""
    global _concluded
    _concluded = source, _cell()
    return run_end(_picture(source), _style())


def _cell() -> int:
    shell = _shell()
    return int(shell.displayhook.prompt_count) if shell is not None else 0


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def in_jupyter() -> bool:
    """Return whether this process is a Jupyter kernel."""
    return getattr(_shell(), "kernel", None) is not None


def _has_anywidget() -> bool:
    return importlib.util.find_spec("anywidget") is not None


def _publish(data: dict[str, Any]) -> Any:
    from IPython.display import display

    return display(data, raw=True, display_id=True)


def _picture(source: RunSource) -> Any:
    try:
        return run_view(source.stats(timeout=CALL_TIMEOUT))
    except DqlabError as error:
        return absent_view(source.name, str(error))


def _style() -> TextStyle:
    return PLAIN if in_jupyter() else TextStyle.detect(sys.stdout, os.environ)


def _shown(source: RunSource) -> dict[str, str]:
    data = bundle(_picture(source), _style())
    return data if mode() is not Mode.TEXT else {"text/plain": data["text/plain"]}


def text_of(value: object) -> str:
    """Return what a terminal shows of a value; "" for None."""
    if value is None:
        return ""
    show = _BUNDLES.get((type(value).__module__, type(value).__qualname__))
    return repr(value) if show is None else show(value)["text/plain"]


def _shown_table(table: Table) -> dict[str, str]:
    text = table_text(table, _style())
    return {"text/plain": text} if mode() is Mode.TEXT else {"text/plain": text, "text/html": table_html(table)}


def _watch_if_live(run: RunSource) -> None:
    if mode() is not Mode.LIVE or not in_jupyter():
        raise NotImplementedError  # how a formatter tells IPython to ask the next one
    if _concluded is None or _concluded[0] is not run or _concluded[1] != _cell():
        watch(run)


def _run_bundle(run: RunSource, **_: object) -> dict[str, str]:
    return _shown(run)


def _results_bundle(results: Any, **_: object) -> dict[str, str]:
    return _shown_table(results_table(results))


def _failures_bundle(failures: Any, **_: object) -> dict[str, str]:
    return _shown_table(failures_table(failures))


def _snapshot_bundle(snapshot: Any, **_: object) -> dict[str, str]:
    return _shown_table(status_table(snapshot))


def _timeline_bundle(timeline: Any, **_: object) -> dict[str, str]:
    text = timeline_text(timeline.history, _style())
    return (
        {"text/plain": text}
        if mode() is Mode.TEXT
        else {"text/plain": text, "text/html": timeline_html(timeline.history)}
    )


def _checkup_bundle(checkup: Any, **_: object) -> dict[str, str]:
    text = checkup_text(checkup, _style())
    return {"text/plain": text} if mode() is Mode.TEXT else {"text/plain": text, "text/html": checkup_html(checkup)}


_BUNDLES: dict[tuple[str, str], Callable[..., dict[str, str]]] = {
    ("dqlab.runs.run", "Run"): _run_bundle,
    ("dqlab.runs.results", "Results"): _results_bundle,
    ("dqlab.runs.failures", "Failures"): _failures_bundle,
    ("dqlab.stats.snapshot", "Snapshot"): _snapshot_bundle,
    ("dqlab.checkup.findings", "Checkup"): _checkup_bundle,
    ("dqlab.runs.timeline", "Timeline"): _timeline_bundle,
}


def register_formatters(ip: Any) -> None:
    """Teach an IPython shell to show runs, results, failures and statistics; more than once does no harm.

    Parameters
    ----------
    ip : InteractiveShell
        The shell, as ``load_ipython_extension`` receives it.
    """
    formatter = ip.display_formatter
    for (module, name), show in _BUNDLES.items():
        formatter.mimebundle_formatter.for_type_by_name(module, name, show)
    formatter.ipython_display_formatter.for_type_by_name("dqlab.runs.run", "Run", _watch_if_live)
