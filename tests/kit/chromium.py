"""Debian's Chromium, driven by Playwright: how it is started, and why it cannot be where it cannot."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["DRAWN", "chromium", "needs_chromium"]

_PATH = shutil.which("chromium") or shutil.which("chromium-browser")
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _obstacle() -> str:
    """Return why no browser can be driven here, empty when one can."""
    if _PATH is None:
        return "no chromium here: apt-get install chromium"
    package = importlib.util.find_spec("playwright")
    if package is None or package.origin is None:
        return "no playwright here: make venv"
    driver = Path(package.origin).parent / "driver" / "node"
    started = subprocess.run([driver, "--version"], capture_output=True, text=True, check=False)
    if started.returncode:
        return f"playwright's driver does not start (apt-get install libatomic1): {started.stderr.strip()}"
    return ""


_OBSTACLE = _obstacle()

needs_chromium = pytest.mark.skipif(bool(_OBSTACLE), reason=_OBSTACLE)


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser; yield Playwright's."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_PATH, args=_ARGUMENTS)
        yield browser
        browser.close()


DRAWN = """path => {
  const frames = [...document.querySelectorAll("iframe")];
  const root = path ? frames.find(each => each.src.includes(`/${path}?`))?.contentDocument : document;
  const canvases = [];
  const walk = at => {
    for (const each of at.querySelectorAll("*")) {
      if (each.tagName === "CANVAS" && each.width && each.height) canvases.push(each);
      if (each.shadowRoot) walk(each.shadowRoot);
    }
  };
  if (root) walk(root);
  return canvases.some(canvas => {
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(data.buffer)).size > 3;
  });
}"""
"""Script: whether a canvas of the page has more than three colours; of a frame of it, if the path of one is given."""
