"""What a tab shows while its service does not answer: one sentence, and it tries again by itself."""

from __future__ import annotations

from html import escape

__all__ = ["waiting"]

EVERY = 5
"""Seconds between two tries."""
_INKS = {"light": ("#ffffff", "rgba(0,0,0,.87)", "#1565c0"), "dark": ("#111111", "rgba(255,255,255,.88)", "#82b6f5")}
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>{again}
<style>
body {{ margin: 0; min-height: 100vh; display: grid; place-content: center; text-align: center;
  background: {ground}; color: {ink};
  font: 13px/1.45 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }}
a {{ color: {brand} }}
</style></head>
<body><main role="alert"><p>{sentence}</p>{retry}</main></body></html>
"""


def waiting(sentence: str, *, theme: str, again: bool = True) -> str:
    """Return a page that says why there is nothing to see.

    Parameters
    ----------
    sentence : str
    theme : str
        "dark", else light.
    again : bool, default True
        Try again by itself, and offer to do so at once.
    """
    ground, ink, brand = _INKS["dark" if theme == "dark" else "light"]
    return _PAGE.format(
        title=escape(sentence[:60]),
        sentence=escape(sentence),
        again=f'<meta http-equiv="refresh" content="{EVERY}">' if again else "",
        retry='<p><a href="">Retry</a></p>' if again else "",
        ground=ground,
        ink=ink,
        brand=brand,
    )
