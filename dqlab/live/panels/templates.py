"""Files beside this module: the page around the panels, and how it looks."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import distributed
from jinja2 import Environment, FileSystemLoader, Template

__all__ = ["BARE", "FRAMED", "drawing", "page", "read"]

HERE = Path(__file__).parent
BARE, FRAMED = "bare.html", "base.html"
"""What a page is embedded in: nothing, or the navigation of Dask's dashboard."""
UNUSED = re.compile(r"<script[^>]*\bsrc=\"[^\"]*/bokeh-(?:gl|tables|mathjax)\.[^\"]*\"[^>]*></script>\s*")
"""Parts of BokehJS that no panel uses: more than half of its four megabytes."""


@cache
def read(name: str) -> str:
    """Return the text of a file."""
    return (HERE / name).read_text(encoding="utf-8")


@cache
def page() -> Template:
    """Return the template of every page; Bokeh fills in what belongs to a session."""
    dask = Path(distributed.__file__).parent / "http" / "templates"
    environment = Environment(loader=FileSystemLoader([HERE, dask]), autoescape=False)
    environment.filters["drawing"] = drawing
    return environment.get_template("page.html")


def drawing(scripts: str) -> str:
    """Return the script tags of BokehJS without the parts that panels do not use."""
    return UNUSED.sub("", scripts)
