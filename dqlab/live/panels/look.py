"""Define the look of the pages: colours and sizes in light and dark, and the files beside this module.

Colours are CSS variables for HTML and values for canvases; the files are the page around the panels, and style sheets.

"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import distributed
from jinja2 import Environment, FileSystemLoader, Template

__all__ = ["BARE", "DARK", "FRAMED", "LIGHT", "SANS", "Tokens", "drawing", "page_template", "read", "tokens"]

SANS = "Helvetica, Arial, sans-serif"
"""Font of canvases: they know no CSS variables, and no system font under one name."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Colours and sizes of one theme."""

    name: str
    page: str
    card: str
    ink: str
    ink2: str
    hair: str
    hair2: str
    grid: str
    track: str
    brand: str
    edge: str
    acked: str
    """States, named as in `Counts`."""
    dead: str
    leased: str
    ready: str
    delayed: str
    cancelled: str
    bad: str
    """Text, as `ink`, `warn` and `ok`; `hair`, `grid` and `track` are lines."""
    warn: str
    ok: str
    scale: float = 1.0
    """Of text and rows: 1.2 on a wall."""

    @property
    def css(self) -> str:
        """The declarations of the variables, as ``--dq-ready: #4C8FDC``."""
        colours = "".join(f"--dq-{each.name}:{getattr(self, each.name)};" for each in fields(self)[1:-1])
        sizes = "".join(f"--dq-{size}:{self.scaled(size)}px;" for size in (11, 12, 13, 15))
        figure = 34 if self.scale > 1 else 22
        room = f"--dq-figure:{figure}px;--dq-row:{self.row}px;--dq-gutter:{self.gutter}px;"
        return f"{colours}{sizes}{room}color-scheme:{self.name};"

    @property
    def row(self) -> int:
        """Height of a row of a table in pixels."""
        return 34 if self.scale > 1 else 27

    @property
    def gutter(self) -> int:
        """Pixels right of a chart, for its latest values."""
        return 148 if self.scale > 1 else 124

    @property
    def small(self) -> str:
        """Size of the smallest text, on axes."""
        return f"{self.scaled(11)}px"

    def scaled(self, size: int) -> int:
        """Return a size of text in pixels."""
        return round(size * self.scale)


LIGHT = Tokens(
    name="light",
    page="#ffffff",
    card="#ffffff",
    ink="#212121",
    ink2="#666666",
    hair="#e0e0e0",
    hair2="#eeeeee",
    grid="#e5e5e5",
    track="#f0f0f0",
    brand="#1565c0",
    edge="#bdbdbd",
    acked="#00665C",
    dead="#B3261E",
    leased="#BF7A00",
    ready="#4C8FDC",
    delayed="#5E35A0",
    cancelled="#8F8F8F",
    bad="#B3261E",
    warn="#8A5700",
    ok="#00665C",
)
DARK = Tokens(
    name="dark",
    page="#111111",
    card="#1c1c1c",
    ink="#e4e4e4",
    ink2="#a9a9a9",
    hair="#3d3d3d",
    hair2="#2a2a2a",
    grid="#373737",
    track="#2d2d2d",
    brand="#82b6f5",
    edge="#616161",
    acked="#22B095",
    dead="#E5484D",
    leased="#FFCB52",
    ready="#A6C5F7",
    delayed="#A566E8",
    cancelled="#6C7078",
    bad="#FF8F88",
    warn="#FFCB52",
    ok="#4FD3B8",
)


def tokens(theme: str) -> Tokens:
    """Return a theme by name, the light one unless it is ``dark``."""
    return DARK if theme == "dark" else LIGHT


HERE = Path(__file__).parent
BARE, FRAMED = "bare.html", "base.html"
"""The frame of a page: none, or the navigation of Dask's dashboard."""
UNUSED = re.compile(r"<script[^>]*\bsrc=\"[^\"]*/bokeh-(?:gl|tables|mathjax)\.[^\"]*\"[^>]*></script>\s*")
"""Parts of BokehJS that no panel uses: more than half of its four megabytes."""


@cache
def read(name: str) -> str:
    """Return the text of a file beside this module."""
    return (HERE / name).read_text(encoding="utf-8")


@cache
def page_template() -> Template:
    """Return the template of every page."""
    dask = Path(distributed.__file__).parent / "http" / "templates"
    # Without autoescape: Bokeh and Dask's own templates put HTML into variables.
    environment = Environment(loader=FileSystemLoader([HERE, dask]), autoescape=False)
    environment.filters["drawing"] = drawing
    return environment.get_template("page.html")


def drawing(scripts: str) -> str:
    """Return the script tags of BokehJS without the parts that panels do not use."""
    return UNUSED.sub("", scripts)
