"""The files that the live widget is drawn with: built from `extension/` into `static/`, and ignored by git."""

from __future__ import annotations

from pathlib import Path

from dqlab.errors import WidgetNotBuilt

__all__ = ["STATIC", "missing", "script", "styles"]

STATIC = Path(__file__).parent / "static"
_SCRIPT, _STYLES = "widget.js", "widget.css"


def script() -> str:
    """Return the widget's ES module, which imports nothing."""
    return _read(_SCRIPT)


def styles() -> str:
    """Return the widget's style sheet."""
    return _read(_STYLES)


def missing() -> Path | None:
    """Return the first file that was not built, if any."""
    return next((path for path in (STATIC / _SCRIPT, STATIC / _STYLES) if not path.exists()), None)


def _read(name: str) -> str:
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise WidgetNotBuilt(file=str(STATIC / name)) from None
