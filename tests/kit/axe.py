"""A page as people who use a screen reader have it: what axe-core finds wrong in it, and what a browser reads out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

__all__ = ["needs_axe", "read_out", "violations"]

_SCRIPT = Path(__file__).parents[2] / "extension" / "node_modules" / "axe-core" / "axe.min.js"

needs_axe = pytest.mark.skipif(not _SCRIPT.is_file(), reason="no axe-core here: make extension")

_RUN = """async ([selectors, foreign]) => {
  const found = await axe.run(selectors ? { include: selectors.map((each) => [each]) } : document, {
    resultTypes: ["violations"],
  });
  const where = (node) => node.target.map((each) => [].concat(each).join(" >>> ")).join(" | ");
  return found.violations.flatMap(({ id, help, nodes }) => nodes
    .filter(() => !(id in foreign))
    .map((node) => `${id} (${help}): ${where(node)}: ${node.html.slice(0, 160)}`));
}"""


def violations(page: Any, *selectors: str, foreign: Mapping[str, str] | None = None) -> list[str]:
    """Return what breaks a rule of axe-core, one line for each element.

    Parameters
    ----------
    page : Page or Frame
    *selectors : str
        Parts of the page that are looked at; default: all of it.
    foreign : mapping of str to str, optional
        Rules that a page breaks outside of what is ours, each with the reason.
    """
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_SCRIPT.read_text(encoding="utf-8"))
    found: list[str] = page.evaluate(_RUN, [list(selectors) or None, dict(foreign or {})])
    return found


def read_out(page: Any) -> list[tuple[str, str]]:
    """Return role and name of all that the browser gives to a screen reader, in its order."""
    session = page.context.new_cdp_session(page)
    try:
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    finally:
        session.detach()
    said = [node for node in nodes if not node.get("ignored")]
    return [(node.get("role", {}).get("value", ""), node.get("name", {}).get("value", "")) for node in said]
