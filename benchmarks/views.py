"""Room `views`: what it costs to look, and what it costs to be looked at."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.figures import Better, Figure, Peer, Series, Target
from benchmarks.looking import looking
from benchmarks.processes import Child, cpu_share
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from tests.kit.chromium import DRAWN, chromium

__all__ = ["views"]

PANELS = ("depth", "throughput", "failures", "unacked", "runs", "storage")
SETTLE_S = 6.0
SEND_US = 22.0
"""Microseconds that a report takes on its way into the worker's stream, measured with the stream alone."""
ACTORS, REPORTS_PER_S, CORES = 16, 4, 2


def views(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure a scheduler with six panels open beside the same without, the first picture, and the cost of reports."""
    with ExitStack() as stack:
        child = Child([sys.executable, "-m", "benchmarks.views_child"])
        stack.callback(child.close)
        child.wait_until_ready()
        address = child.ask("address")
        browser = stack.enter_context(chromium())
        time.sleep(SETTLE_S)
        reports = [_reports(child.ask("reports")) for _ in range(sizes.rounds)]
        paints = [_first_paint(browser, address) for _ in range(sizes.rounds)]
        closed, opened = [], []
        for _ in range(sizes.rounds):
            closed.append(cpu_share(child.pid, sizes.idle_s))
            pages = [_open(browser, f"{address}/individual-dq-{panel}") for panel in PANELS]
            time.sleep(SETTLE_S)
            opened.append(cpu_share(child.pid, sizes.idle_s))
            for page in pages:
                page.close()
            time.sleep(2)
    without, above = Series.of(closed), Series.of([a - b for a, b in zip(opened, closed, strict=True)])
    none = Peer("the same with nobody looking", without)
    return [
        Figure(
            "scheduler's CPU with six panels open, above none", "% of a core", Better.LOWER, above, Target(3.0), (none,)
        ),
        Figure("first picture of /dq, from the click", "s", Better.LOWER, Series.of(paints), Target(2.0)),
        Figure(
            f"statistics of {ACTORS} actors, 4 reports a second each, of {CORES} cores",
            "% of the CPU",
            Better.LOWER,
            Series.of(reports),
            Target(0.5),
        ),
        *looking(sizes),
    ]


def _reports(costs: dict[str, Any]) -> float:
    """Return the share of the CPU, percent, that the reports of sixteen actors take."""
    mean = sum(costs["report"]) / len(costs["report"])
    return ACTORS * REPORTS_PER_S * (mean + SEND_US + costs["take"]) / (CORES * 1e6) * 100


def _open(browser: Any, url: str) -> Any:
    page = browser.new_page(viewport={"width": 700, "height": 420})
    page.goto(url)
    return page


def _first_paint(browser: Any, address: str) -> float:
    """Return the seconds until the depth panel of `/dq` has drawn something."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    start = time.perf_counter()
    page.goto(f"{address}/dq")
    page.wait_for_function(DRAWN, arg="", timeout=20_000, polling=20)
    seconds = time.perf_counter() - start
    page.close()
    return seconds
