"""Room `jupyter`: what the JupyterLab extension costs the browser, and the cluster it looks at."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nbformat

from benchmarks.figures import Better, Figure, Peer, Series, Target
from benchmarks.processes import Child, cpu_share
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from tests.browser.lab_server import TOKEN, execute, jupyterlab, lab_page
from tests.kit.chromium import DRAWN

__all__ = ["jupyter"]

SERVICE = "local"
KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
OURS = ("depth", "throughput", "failures", "unacked", "runs", "storage")
TABS = 20
SETTLE_S = 8.0


def jupyter(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure the first picture in a tab, what the sidebar asks for, and the scheduler with twenty tabs open."""
    with ExitStack() as stack:
        state, root = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        stack.enter_context(_runtime(state / "runtime"))
        nbformat.write(nbformat.v4.new_notebook(metadata={"kernelspec": KERNEL}), root / "empty.ipynb")
        child = Child([sys.executable, "-m", "benchmarks.views_child"])
        stack.callback(child.close)
        child.wait_until_ready()
        url = stack.enter_context(jupyterlab(state, root))
        polls = [float(_size(f"{url}dq/api/services/{SERVICE}/snapshot?token={TOKEN}")) for _ in range(sizes.rounds)]
        paints = [_first_paint(url) for _ in range(sizes.rounds)]
        with lab_page(url, "empty.ipynb") as page:
            time.sleep(SETTLE_S)
            closed = [cpu_share(child.pid, sizes.idle_s) for _ in range(sizes.rounds)]
            for at in range(TABS):
                _open(page, f"individual-dq-{OURS[at % len(OURS)]}", queue="bench" if at % 2 else "", run=str(at // 12))
            time.sleep(SETTLE_S)
            opened = [cpu_share(child.pid, sizes.idle_s) for _ in range(sizes.rounds)]
    none = Peer("the same with none open", Series.of(closed))
    above = Series.of([a - b for a, b in zip(opened, closed, strict=True)])
    return [
        Figure(
            "first picture in a tab of JupyterLab, from the click", "s", Better.LOWER, Series.of(paints), Target(1.5)
        ),
        Figure(
            "one poll of the sidebar, one run and two consumers", "bytes", Better.LOWER, Series.of(polls), Target(40e3)
        ),
        Figure(
            f"scheduler's CPU with {TABS} tabs open, above none",
            "% of a core",
            Better.LOWER,
            above,
            Target(5.0),
            (none,),
        ),
    ]


@contextmanager
def _runtime(directory: Path) -> Iterator[None]:
    """Have clusters announced where the server of this room looks."""
    before = os.environ.get("JUPYTER_RUNTIME_DIR")
    os.environ["JUPYTER_RUNTIME_DIR"] = str(directory)
    try:
        yield
    finally:
        del os.environ["JUPYTER_RUNTIME_DIR"]
        if before is not None:
            os.environ["JUPYTER_RUNTIME_DIR"] = before


def _size(url: str) -> int:
    with urllib.request.urlopen(url, timeout=20) as answer:
        body = answer.read()
    json.loads(body)
    return len(body)


def _open(page: Any, path: str, **scope: str) -> None:
    opening = {"service": SERVICE, "path": path, "name": path, "ours": True}
    execute(page, "dqlab:open-panel", {**opening, "scope": {name: value for name, value in scope.items() if value}})


def _first_paint(url: str) -> float:
    """Return the seconds from the command to the first drawing; nothing is in the browser's cache."""
    with lab_page(url, "empty.ipynb") as page:
        start = time.perf_counter()
        _open(page, "individual-dq-depth")
        page.wait_for_function(DRAWN, arg="individual-dq-depth", timeout=20_000, polling=20)
        return time.perf_counter() - start
