"""Define the look of the pages: the colours of both themes, for HTML and for canvases, and the files beside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import distributed
from bokeh.themes import Theme
from jinja2 import Environment, FileSystemLoader, Template

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


class Tokens:
    """The colours of one theme, by name."""

    def __init__(self, name: str, place: int) -> None:
        self.name = name
        self._colours = {colour: both[place] for colour, both in COLOURS.items()}

    def __getitem__(self, colour: str) -> str:
        return self._colours[colour]

    @property
    def css(self) -> str:
        """The declarations of the variables, as ``--dq-ready:#4C8FDC``."""
        return "".join(f"--dq-{name}:{colour};" for name, colour in self._colours.items()) + f"color-scheme:{self.name}"

    @property
    def theme(self) -> Theme:
        """The look of figures."""
        axis = {
            "axis_line_color": None,
            "major_tick_line_color": None,
            "minor_tick_line_color": None,
            "major_label_text_color": self["ink2"],
            "major_label_text_font": SANS,
            "major_label_text_font_size": "11px",
        }
        plot = {"outline_line_color": None, "background_fill_alpha": 0, "border_fill_alpha": 0, "min_border": 0}
        words = {"text_font": {"value": SANS}, "text_font_size": {"value": "11px"}}
        grid = {"grid_line_color": self["hair"]}
        return Theme(json={"attrs": {"Plot": plot, "Axis": axis, "Grid": grid, "Text": words}})


LIGHT, DARK = Tokens("light", 0), Tokens("dark", 1)


def tokens(theme: str) -> Tokens:
    """Return a theme by name, the light one unless it is ``dark``."""
    return DARK if theme == "dark" else LIGHT


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
