"""Files beside this module: the page around the panels, and how it looks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import distributed
from jinja2 import Environment, FileSystemLoader, Template

__all__ = ["BARE", "FRAMED", "page", "read"]

HERE = Path(__file__).parent
BARE, FRAMED = "bare.html", "base.html"
"""What a page stands in: nothing, or the navigation of Dask's dashboard."""


@cache
def read(name: str) -> str:
    """Return the text of a file."""
    return (HERE / name).read_text(encoding="utf-8")


@cache
def page() -> Template:
    """Return the template of every page; Bokeh fills in what belongs to a session."""
    dask = Path(distributed.__file__).parent / "http" / "templates"
    return Environment(loader=FileSystemLoader([HERE, dask]), autoescape=False).get_template("page.html")
