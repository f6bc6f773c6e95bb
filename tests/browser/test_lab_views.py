"""The sidebar and the failures tab in JupyterLab: rules of axe-core, and where their parts stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nbformat
import pytest

from tests.browser.lab_server import execute, jupyterlab, lab_page
from tests.kit.axe import needs_axe, violations
from tests.kit.chromium import needs_chromium
from tests.kit.structure import SIZES, flaws

pytest.importorskip("dqlab.jupyter.server", reason="Jupyter's server has no part of dqlab here")

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(240), needs_chromium]

SIDEBAR, FAILURES = ".dq-Side", ".dq-Fail"
RUN = '[data-row="run default parse-invoices"]'
LONG = '[data-row$=" run-of-a-name-that-no-sidebar-has-room-for"]'
WORK = """
import time
import dqlab as dq
%load_ext dqlab
lab = dq.connect(n=2)
def parse(number):
    if number % 5 == 0:
        raise KeyError(f"no total on page {number} of a document with a name that is far too long for any column of it")
    if number % 7 == 0:
        raise ValueError("x" * 300)
    return number
run = lab.map(parse, range(400), name="parse-invoices", retry=dq.Retry(0))
pool = lab.queue("queue-of-a-name-that-no-sidebar-has-room-for")
pool.map(abs, range(200), name="run-of-a-name-that-no-sidebar-has-room-for")
pool.pause()
run.wait()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A JupyterLab with one notebook."""
    root = tmp_path_factory.mktemp("notebooks")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [nbformat.v4.new_code_cell(WORK.strip())]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), root / "work.ipynb")
    with jupyterlab(tmp_path_factory.mktemp("jupyter"), root) as url:
        yield url


def shown(page: Any) -> None:
    """Show the sidebar with the run that has ended, and its failures in a tab."""
    execute(page, "notebook:run-all-cells")
    execute(page, "dqlab:show")
    page.wait_for_selector(f"{SIDEBAR} {RUN} .dq-badge", timeout=90_000)
    page.locator(f"{SIDEBAR} .dq-need").first.wait_for(timeout=30_000)
    page.click(f"{RUN} .dq-badge")
    page.wait_for_selector(f"{FAILURES} .dq-trace", timeout=30_000)


@needs_axe
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_sidebar_and_failures_break_no_rule(server: str, dark: bool) -> None:
    """Buttons stood in a tree, which may have none, and a head of a column had no text."""
    with lab_page(server, "work.ipynb", width=1600, dark=dark) as page:
        shown(page)
        assert violations(page, SIDEBAR) == []
        assert violations(page, FAILURES) == []

        page.hover(RUN)
        page.click(f"{RUN} .dq-more")
        page.locator(".dq-Menu").wait_for(timeout=10_000)
        assert violations(page, SIDEBAR) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_sidebar_and_failures_stand_at_each_size(server: str, dark: bool) -> None:
    """Names are shortened with the whole of them under the pointer; figures never are."""
    found: dict[str, Any] = {}
    with lab_page(server, "work.ipynb", width=1600, dark=dark) as page:
        shown(page)
        for size, (width, _) in SIZES.items():  # 640 at 200 % is laid out as 640
            page.set_viewport_size({"width": width, "height": 1000})
            for row in (RUN, LONG):
                page.hover(f"{SIDEBAR} {row} .dq-name")
                found[f"sidebar, {size}, {row}"] = flaws(page, SIDEBAR, f"{SIDEBAR} .dq-need, {SIDEBAR} [data-row]")
                assert page.locator(f"{SIDEBAR} {row} .dq-more").bounding_box()["width"] > 20
        execute(page, "application:toggle-left-area")
        page.wait_for_selector(SIDEBAR, state="hidden")
        execute(page, "application:set-mode", {"mode": "single-document"})
        for size, (width, _) in SIZES.items():
            page.set_viewport_size({"width": width, "height": 1000})
            found[f"failures, {size}"] = flaws(page, FAILURES, f"{FAILURES} header, {FAILURES} section")

    assert {name: each for name, each in found.items() if each} == {}
