"""The quickstart, as a person sees it: JupyterLab in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest

from tests.browser.lab_server import execute, jupyterlab, lab_page
from tests.kit.chromium import needs_chromium

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180), needs_chromium]

LIBRARY = "dq.Documents.stdlib()"
SLOW = """
import time
import dqlab as dq
%load_ext dqlab
%dq connect -n 2 -o lab
def slow(number):
    time.sleep(0.05)
    return number
"""
BLOCKED = "run.wait(timeout='2m')\nprint('no longer', 'blocked')"
"""A cell that keeps the kernel from all else until the work is done, and fails where that never comes."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One JupyterLab for this module: the quickstart over fewer documents, and one that is busy for 4 s."""
    root = tmp_path_factory.mktemp("notebooks")
    quickstart = nbformat.read(NOTEBOOKS / "quickstart.ipynb", as_version=4)
    for cell in quickstart.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            cell.source = cell.source.replace(LIBRARY, f"{LIBRARY}[500:]")
    nbformat.write(quickstart, root / "quickstart.ipynb")
    written = {
        "blocked": [SLOW, "%dq submit slow --over range(160) --name slow --watch -o run", BLOCKED, "%dq close"],
    }
    for name, sources in written.items():
        cells = [nbformat.v4.new_code_cell(source.strip()) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=quickstart.metadata), root / f"{name}.ipynb")
    with jupyterlab(tmp_path_factory.mktemp("jupyter"), root) as url:
        yield url


def test_run_all_ends_with_the_run_in_view_and_the_lab_open(server: str) -> None:
    """The first minute of a new user: Run All shows a run at work, and its buttons are there to be tried."""
    hosts: set[str | None] = set()
    with lab_page(server, "quickstart.ipynb", height=800) as page:
        page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
        execute(page, "notebook:run-all-cells")
        pause = page.get_by_role("button", name="Pause")
        pause.wait_for(timeout=120_000)
        page.get_by_role("status").filter(has_text="Running").wait_for(timeout=30_000)
        page.wait_for_function("() => parseFloat(document.querySelector('.dq-pct')?.innerText) > 0", timeout=30_000)
        shown = page.locator(".jp-WindowedPanel-outer").first.bounding_box()
        for part in (pause, page.locator(".dq-pct").first):
            box = part.bounding_box()
            assert shown["y"] <= box["y"]
            assert box["y"] + box["height"] <= shown["y"] + shown["height"]

        pause.click()
        page.get_by_role("button", name="Resume").wait_for(timeout=10_000)

        page.set_viewport_size({"width": 1280, "height": 9000})  # cells out of sight are not in the page
        page.get_by_text("0 dead, 0 left").wait_for(timeout=30_000)
        page.locator(".jp-OutputArea-output img").wait_for(timeout=30_000)
        for said in ("the longest has", "in outline", "outline  done, "):  # outputs are drawn when their cells come
            page.get_by_text(said).first.wait_for(timeout=30_000)
        text = page.inner_text(".jp-Notebook")
        assert re.search(r"\d+ documents, \d+ pages, the longest has \d+", text)
        assert re.search(r"line \d+, in outline\s+hardest = max\(functions, key=branches\)", text)
        assert re.search(r"outline  done, \d+ dead  \d+ documents, [\d,]+ pages in", text)
        assert re.search(r"outline  done  \d+ documents", text)
        assert "is closed" not in text
        assert "Error displaying widget" not in text
    assert hosts - {None} <= {"127.0.0.1"}  # None: data and blob URLs


@pytest.mark.smoke
@pytest.mark.parametrize("classic", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["lab", "notebook-7"])
def test_progress_moves_and_buttons_act_while_a_cell_blocks(server: str, classic: bool) -> None:
    """A widget that freezes with the kernel is of no use just when it is needed."""
    with lab_page(server, "blocked.ipynb", classic=classic) as page:
        execute(page, "notebook:run-all-cells")
        pause = page.get_by_role("button", name="Pause")
        pause.wait_for(timeout=60_000)
        seen: set[str] = set()
        chip = page.get_by_role("status").filter(has_text="Running")
        chip.wait_for(timeout=20_000)
        share = page.locator(".dq-pct").first
        for _ in range(3):
            before = share.inner_text()
            page.wait_for_function(
                "([selector, before]) => document.querySelector(selector)?.innerText !== before",
                arg=[".dq-pct", before],
                timeout=10_000,
            )
            seen.add(before)
        assert len(seen) == 3

        pause.click()
        page.get_by_role("button", name="Resume").wait_for(timeout=5_000)
        assert page.get_by_text("no longer blocked").count() == 0

        page.get_by_role("button", name="Resume").click()
        page.get_by_text("no longer blocked").wait_for(timeout=60_000)
