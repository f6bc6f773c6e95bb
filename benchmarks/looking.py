"""What looking costs the browser: its main thread for the widget of a run, and the messages of an open dashboard.

CPU seconds of the thread are counted, not how long its tasks took: others may use the cores meanwhile.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

from benchmarks.figures import Better, Figure, Peer, Series, Target
from benchmarks.sizes import Sizes
from tests.browser.lab_server import execute, jupyterlab, lab_page
from tests.kit.chromium import DRAWN

__all__ = ["looking"]

LOOK_S = 3
"""Windows of `Sizes.idle_s` that one look lasts."""
SETTLE_S = 5.0
BELOW = 30
"""Cells below the widget, so that it can be scrolled away."""
WORK = """
import time
import dqlab as dq
%load_ext dqlab
lab = dq.connect(n=2)
def nap(number):
    time.sleep(0.004)
    if number % 500 == 7:
        raise ValueError(f"document {number} has no total")
    return number
run = lab.map(nap, range(1_000_000), name="looked-at", retry=dq.Retry(0))
print(lab.dashboard)
"""
ADDRESS = "() => document.querySelector('.jp-OutputArea')?.textContent.match(/http:[^\\s]+(?=\\/)/)?.[0] ?? ''"
TO_WIDGET = "() => document.querySelector('.dqlab').scrollIntoView({ block: 'center' })"
AWAY = "() => document.querySelector('.jp-WindowedPanel-outer').scrollTo(0, 1e6)"


def looking(sizes: Sizes) -> list[Figure]:
    """Measure a run's widget on screen and scrolled away beside the notebook without it, and an open dashboard."""
    seconds = LOOK_S * sizes.idle_s
    shown, away, messages = [], [], []
    with _notebook() as page:
        page.wait_for_function(ADDRESS, timeout=90_000)
        address = page.evaluate(ADDRESS)
        time.sleep(SETTLE_S)
        without = [_share(page, seconds) for _ in range(sizes.rounds)]
        page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1 }")
        execute(page, "notebook:run-cell")
        page.wait_for_selector(".dqlab .dq-v", timeout=60_000)
        for _ in range(sizes.rounds):
            page.evaluate(TO_WIDGET)
            time.sleep(SETTLE_S)
            shown.append(_share(page, seconds))
            page.evaluate(AWAY)
            time.sleep(SETTLE_S)
            away.append(_share(page, seconds))
        dashboard = page.context.browser.new_page()
        frames = _frames(dashboard)
        dashboard.set_viewport_size({"width": 1280, "height": 900})
        dashboard.goto(f"{address}/dq")
        dashboard.wait_for_function(DRAWN, arg="", timeout=30_000)
        dashboard.wait_for_timeout(1000 * SETTLE_S)
        for _ in range(sizes.rounds):
            before, start = len(frames), time.perf_counter()
            dashboard.wait_for_timeout(1000 * seconds)
            messages.append((len(frames) - before) / (time.perf_counter() - start))
    none = Peer("the same notebook without the widget", Series.of(without))
    unit, lower = "% of a core", Better.LOWER
    return [
        Figure("browser's main thread, a run's widget on screen", unit, lower, Series.of(shown), Target(5, 3), (none,)),
        Figure("the same, the widget scrolled away", unit, lower, Series.of(away), Target(2, 1), (none,)),
        Figure("websocket messages of an open dashboard", "1/s", lower, Series.of(messages), Target(5, 3)),
    ]


@contextmanager
def _notebook() -> Iterator[Any]:
    """Open a notebook in which a run goes on, and whose second cell shows it."""
    text = "\n\n".join(["text"] * 5)
    cells = [nbformat.v4.new_code_cell(WORK.strip()), nbformat.v4.new_code_cell("run")]
    cells += [nbformat.v4.new_markdown_cell(text) for _ in range(BELOW)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "notebooks")
        root.mkdir()
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), root / "work.ipynb")
        with jupyterlab(Path(folder), root) as url, lab_page(url, "work.ipynb") as page:
            execute(page, "notebook:run-cell")
            yield page


def _share(page: Any, seconds: float) -> float:
    """Return the share of a core, percent, that the page's main thread takes."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        figures = session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in figures if each["name"] == "TaskDuration"))

    before, start = spent(), time.perf_counter()
    time.sleep(seconds)
    share = (spent() - before) / (time.perf_counter() - start) * 100
    session.detach()
    return share


def _frames(page: Any) -> list[Any]:
    """Return a list to which each message that comes to the page is added."""
    frames: list[Any] = []

    def came(frame: Any) -> None:  # not the list's own method, which Playwright cannot mark as its listener
        frames.append(frame)

    page.on("websocket", lambda socket: socket.on("framereceived", came))
    return frames
