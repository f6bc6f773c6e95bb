"""Make the parts of pages: colours, words, tables and charts on one time axis, and change what differs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Protocol

import distributed
import numpy as np
from bokeh.core.properties import value
from bokeh.models import (
    Column,
    ColumnDataSource,
    CrosshairTool,
    CustomJS,
    DataTable,
    DatetimeTickFormatter,
    Div,
    GlyphRenderer,
    HoverTool,
    HTMLTemplateFormatter,
    InlineStyleSheet,
    Range1d,
    Span,
    TableColumn,
)
from bokeh.plotting import figure
from bokeh.themes import Theme
from jinja2 import Environment, FileSystemLoader, Template
from numpy.typing import NDArray

from dqlab.live.panels.scene import Scene
from dqlab.live.parts import Cell
from dqlab.live.style import Ink, StateLook

SANS = "Helvetica, Arial, sans-serif"
"""Font of canvases: they know no CSS variables."""


COLOURS = {
    "page": ("#ffffff", "#111111"),
    "card": ("#ffffff", "#1c1c1c"),
    "ink": ("#212121", "#e4e4e4"),
    "ink2": ("#666666", "#a9a9a9"),  # quiet text
    "hair": ("#e6e6e6", "#373737"),  # lines between rows
    "edge": ("#bdbdbd", "#616161"),  # around buttons
    "track": ("#f0f0f0", "#2d2d2d"),  # behind bars
    "brand": ("#1565c0", "#82b6f5"),
    # States, named as in `Counts`.
    "dead": ("#B3261E", "#E5484D"),
    "leased": ("#BF7A00", "#FFCB52"),
    "ready": ("#4C8FDC", "#A6C5F7"),
    "delayed": ("#5E35A0", "#A566E8"),
    "cancelled": ("#8F8F8F", "#6C7078"),
    "bad": ("#B3261E", "#FF8F88"),  # text, as `warn` and `ok`
    "warn": ("#8A5700", "#FFCB52"),
    "ok": ("#00665C", "#4FD3B8"),
}
"""Light and dark."""


Colours = Mapping[str, str]


def colours(theme: str) -> Colours:
    """Return the colours of a theme by name, those of the light one unless it is ``dark``."""
    return {name: both[theme == "dark"] for name, both in COLOURS.items()}


def variables(theme: str) -> str:
    """Return the declarations of the variables, as ``--dq-ready:#4C8FDC``."""
    return "".join(f"--dq-{name}:{colour};" for name, colour in colours(theme).items()) + f"color-scheme:{theme}"


def look(of: Colours) -> Theme:
    """Return the look of figures."""
    axis = {
        "axis_line_color": None,
        "major_tick_line_color": None,
        "minor_tick_line_color": None,
        "major_label_text_color": of["ink2"],
        "major_label_text_font": SANS,
        "major_label_text_font_size": "11px",
    }
    plot = {"outline_line_color": None, "background_fill_alpha": 0, "border_fill_alpha": 0, "min_border": 0}
    words = {"text_font": {"value": SANS}, "text_font_size": {"value": "11px"}}
    grid = {"grid_line_color": of["hair"]}
    return Theme(json={"attrs": {"Plot": plot, "Axis": axis, "Grid": grid, "Text": words}})


HERE = Path(__file__).parent


@cache
def read(name: str) -> str:
    """Return the text of a file beside this module."""
    return (HERE / name).read_text(encoding="utf-8")


@cache
def page_template() -> Template:
    """Return the template of every page, inside of Dask's own."""
    dask = Path(distributed.__file__).parent / "http" / "templates"
    # Without autoescape: Bokeh and Dask's own templates put HTML into variables.
    return Environment(loader=FileSystemLoader([HERE, dask]), autoescape=False).get_template("page.html")


Series = NDArray[np.float32]
INKS = {Ink.STRONG: "strong", Ink.QUIET: "mut", Ink.WARN: "warn", Ink.BAD: "bad", Ink.GOOD: "ok"}
STEPS = (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10)
ROW = 27
"""Pixels of a row of a table, and of its head."""
LEFT = 46
"""Pixels left of charts, for the figures of their axes: charts above one another have one time axis."""


def text(words: object) -> str:
    """Return anything as HTML that reads as it is written."""
    return escape(str(words))


def strong(words: object) -> str:
    """Return text in bold."""
    return f"<b>{text(words)}</b>"


def code(line: object) -> str:
    """Return a line that can be typed."""
    return f"<code>{text(line)}</code>"


def amount(state: StateLook, figure: str) -> str:
    """Return how many messages are in a state, with the colour of its chart: the key of the chart too."""
    return f'<span><i class="key {state.field}"></i>{strong(figure)} {text(state.word)}</span>'


def show(model: Any, **values: Any) -> None:
    """Set the properties that differ."""
    differing = {name: new for name, new in values.items() if getattr(model, name) != new}
    if differing:
        model.update(**differing)


def fill(source: ColumnDataSource, **columns: Any) -> None:
    """Replace all columns if one differs."""
    old = source.data
    if old.keys() != columns.keys() or any(not _same(old[name], new) for name, new in columns.items()):
        source.data = columns


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        return bool(np.array_equal(old, new, equal_nan=new.dtype.kind == "f"))
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return type(old) is type(new) and bool(old == new)


def series(values: Sequence[float | None]) -> Series:
    """Return values as a column, with NaN for unknown ones, where nothing is drawn."""
    return np.asarray(values, dtype=np.float32)


def times(scene: Scene, at: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return instants as values of the axis, in milliseconds that read as the local time of day."""
    # Bokeh writes times as UTC: moved by the zone, they read as the time of day here.
    return (np.asarray(at, dtype=np.float64) + scene.zone) * 1000.0


def nice(highest: float) -> float:
    """Return a round end of an axis that must show a value, with a little room above it."""
    if not highest > 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(highest))
    return next(step * scale for step in STEPS if step * scale >= highest * 0.9999)


def html(sheet: InlineStyleSheet, name: str) -> Div:
    """Return a place for HTML with the class `name` of panel.css."""
    return Div(
        name=name,
        css_classes=[name],
        stylesheets=[sheet],
        margin=0,
        sizing_mode="stretch_width",
        # A formula in a document's name or an error must stay text.
        disable_math=True,
        syncable=False,
    )


class Stage:
    """What the panels of a page share: their look, one time axis and one crosshair."""

    def __init__(self, theme: Colours, *, alone: bool = False) -> None:
        self.theme, self.alone = theme, alone
        # Each model has a shadow root of its own, which page.css does not reach.
        self.sheet = InlineStyleSheet(css=read("panel.css"))
        self.range = Range1d(0, 1)
        self.crosshair = Span(dimension="height", line_color=theme["ink2"], line_alpha=0.7)

    @property
    def rows(self) -> int:
        """Rows that a table has room for."""
        return 32 if self.alone else 8

    def chart(self, height: int, *, first: bool = True, **more: Any) -> figure:
        """Return an empty chart without tools; the `first` one of a panel fills the height that its table leaves."""
        fig = figure(
            height=height,
            min_height=height if first else None,
            sizing_mode="stretch_both" if first else "stretch_width",
            tools="",
            toolbar_location=None,
            min_border_left=LEFT,
            min_border_right=12,
            min_border_top=8,
            min_border_bottom=8,
            # Else each layout in a browser is a message to the scheduler.
            syncable=False,
            **more,
        )
        fig.xgrid.grid_line_color = None
        fig.y_range = Range1d(0, 1)
        fig.yaxis.ticker.desired_num_ticks = 3
        fig.yaxis.ticker.num_minor_ticks = 0
        return fig

    def over_time(self, height: int, *, first: bool = True) -> figure:
        """Return an empty chart on the time axis."""
        fig = self.chart(height, first=first, x_range=self.range, x_axis_type="datetime")
        fig.add_tools(CrosshairTool(overlay=self.crosshair))
        fig.xaxis.formatter = _clock()
        fig.xaxis.ticker.num_minor_ticks = 0
        fig.xaxis.ticker.desired_num_ticks = 5
        return fig

    def marks(self, source: ColumnDataSource, fig: figure) -> None:
        """Draw dashed lines at the instants of column ``x``, with the words of column ``word`` under the pointer."""
        lines = fig.vspan(x="x", source=source, line_color=self.theme["ink2"], line_dash=value([2, 2]), line_width=1)
        fig.add_tools(HoverTool(tooltips="@word", renderers=[lines]))

    def hover(self, fig: figure, drawn: GlyphRenderer, *lines: tuple[str, str], mode: str = "vline") -> None:
        """Show exact values and their time under the pointer."""
        tips = [("at", "@x{%H:%M:%S}"), *lines]
        fig.add_tools(HoverTool(tooltips=tips, formatters={"@x": "datetime"}, renderers=[drawn], mode=mode))


def _clock() -> DatetimeTickFormatter:
    days = dict.fromkeys(("days", "months", "years"), "%d %b")
    minutes = dict.fromkeys(("minutes", "hourmin", "hours"), "%H:%M")
    seconds = dict.fromkeys(("microseconds", "milliseconds", "seconds", "minsec"), "%H:%M:%S")
    return DatetimeTickFormatter(**days, **minutes, **seconds)


class Rows:
    """A `Table` as a DataTable."""

    def __init__(self, stage: Stage, name: str, titles: str, widths: Sequence[int], *, right: str = "") -> None:
        # `titles` and `right` are words: the heads, and which of them stand above figures.
        heads = titles.split()
        figures = [at for at, head in enumerate(heads) if head in right.split()]
        self._width = len(heads)
        self.source = ColumnDataSource({name: [] for name in _names(len(heads))})
        lined_up = ",".join(f".slick-header-column:nth-child({at + 1}),.l{at}" for at in figures)
        # Where it is narrow the panel scrolls: cut figures are wrong figures.
        placed = f"{lined_up}{{text-align:right!important}}:host{{min-width:{sum(widths)}px}}"
        self.root = DataTable(
            name=name,
            source=self.source,
            columns=[
                TableColumn(field=f"t{at}", title=head.replace("_", " "), width=width, formatter=_formatter(at))
                for at, (head, width) in enumerate(zip(heads, widths, strict=True))
            ],
            index_position=None,
            selectable=False,
            sortable=False,
            reorderable=False,
            autosize_mode="force_fit",
            sizing_mode="stretch_width",
            height=ROW,
            row_height=ROW,
            margin=0,
            stylesheets=[stage.sheet, InlineStyleSheet(css=placed)],
        )
        # Bokeh 3.9 draws a table again for another number of rows, and not for other values in them.
        again = CustomJS(args={"view": self.root.view}, code="view.change.emit()")
        self.source.js_on_change("data", again)

    def draw(self, rows: Sequence[tuple[Cell, ...]], total: tuple[Cell, ...] = ()) -> None:
        """Show rows, and a last one."""
        rows = [*rows, *([total] if total else [])]
        columns: dict[str, list[Any]] = {name: [] for name in _names(self._width)}
        for at in range(self._width):
            cells = [row[at] for row in rows]
            columns[f"t{at}"] = [cell.text for cell in cells]
            columns[f"i{at}"] = [INKS.get(cell.ink, "") for cell in cells]
            columns[f"b{at}"] = [round(100 * cell.filled) for cell in cells]
        fill(self.source, **columns)
        show(self.root, height=ROW * (len(rows) + 1) + 2, visible=bool(rows))


def _names(width: int) -> Iterable[str]:
    return (f"{kind}{at}" for at in range(width) for kind in "tib")


def _formatter(at: int) -> HTMLTemplateFormatter:
    # `<%-` escapes: texts of users stay texts.
    bar = f'<% if (b{at}) {{ %><i class="bar"><i style="width:<%- b{at} %>%"></i></i><% }} %>'
    return HTMLTemplateFormatter(template=f'{bar}<span class="<%- i{at} %>" title="<%- t{at} %>"><%- t{at} %></span>')


class Panel(Protocol):
    """Figures with a title, which draw a Scene: they add up what they show, and ask nothing."""

    name: str
    """Its name on the page and in its address."""
    title: str
    parts: list[Any]
    """Bokeh models, from top to bottom."""

    def __init__(self, stage: Stage) -> None: ...

    def answer(self, scene: Scene) -> str:
        """Return the panel's answer in plain words, for its title line."""
        ...

    def facts(self, scene: Scene) -> str:
        """Return the key of its chart and further figures, as HTML."""
        ...

    def draw(self, scene: Scene) -> None:
        """Update the models."""
        ...


SCROLLS = ":host{overflow-x:auto}"


def column(name: str, parts: list[Any]) -> Column:
    """Return the parts of a panel, one below the other."""
    return Column(*parts, name=name, sizing_mode="stretch_both", spacing=0, stylesheets=[SCROLLS])
