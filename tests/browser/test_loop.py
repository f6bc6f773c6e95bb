"""Fix, retry, done in the widget that watched a run: JupyterLab in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.lab_server import execute, jupyterlab, lab_page
from tests.kit.chromium import needs_chromium

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(240), needs_chromium]

CONNECT = """
import time
import dqlab as dq
%load_ext dqlab
%dq connect -n 1 -o lab
def parse(x):
    time.sleep(0.2)
    if x % 3 == 0:
        raise ValueError("no total")
    return x
"""
RUN = """
run = lab.map(parse, range(60), retry=dq.Retry(0))
run
"""
TWO_CLUSTERS = """
import time
import dqlab as dq
%load_ext dqlab
first = dq.connect(n=1, name="first")
own = dq.connect(n=1, name="own")
def parse(x):
    time.sleep(0.05)
    return x
run = own.map(parse, range(2_000), name="parse")
"""
MENDED = """
def parse(x):
    return x
"""


CELL = """
%%dq submit --over range(60) --name parse --retries 0 -o run
def parse(x):
    if x % 3 == 0:
        raise ValueError("no total")
    return x
"""


VIEWED = CELL.replace(" -o run", "")

KEPT = "() => [...document.querySelectorAll('.dqlab')].every((each) => each.dqOver && each.dqTwin?.['text/plain'])"


def save(page: Any) -> None:
    execute(page, "docmanager:save")
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')", timeout=15_000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "notebooks"
    root.mkdir()
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for name, sources in {
        "loop": (CONNECT, RUN),
        "edited": (CONNECT, CELL, "%dq wait parse"),
        "viewed": (CONNECT, VIEWED),
        "two": (TWO_CLUSTERS, "run", "own"),
        "again": (CONNECT.replace("-n 1", "-n 1 --store store"), RUN.replace("(60)", "(6)")),
    }.items():
        cells = [nbformat.v4.new_code_cell(source.strip()) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), root / f"{name}.ipynb")
    return root


@pytest.fixture
def server(root: Path, tmp_path: Path) -> Iterator[str]:
    with jupyterlab(tmp_path / "jupyter", root) as url:
        yield url


def test_a_run_is_mended_and_retried_in_the_widget_that_watched_it(server: str, root: Path) -> None:
    """The end, the edited function in a cell below, a press, and all is done; what is saved needs no kernel."""
    with lab_page(server, "loop.ipynb") as page:
        execute(page, "notebook:run-all-cells")
        page.locator(".dqlab .dq-chip", has_text="Running").wait_for(timeout=90_000)
        page.locator(".dqlab .dq-chip", has_text="Done, 20 dead").wait_for(timeout=60_000)
        page.locator(".dqlab header button", has_text="Retry 20 with v1").wait_for(timeout=15_000)

        page.get_by_role("button", name="More", exact=True).click()
        page.get_by_role("menuitem", name="Insert cell with parse()").click()
        cells = "window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells"
        page.wait_for_function(f"() => {cells}.length === 3")
        assert page.evaluate(f"() => {cells}[2].getSource()").startswith("def parse(x):")
        assert page.evaluate("() => window.jupyterapp.shell.currentWidget.content.activeCellIndex") == 2
        page.evaluate(f"(source) => {cells}[2].setSource(source)", MENDED.strip())
        execute(page, "notebook:run-cell")

        page.locator(".dqlab header button", has_text="Retry 20 with parse v2").click(timeout=20_000)
        page.wait_for_function(
            "() => /^Done(?!.*dead)/.test(document.querySelector('.dqlab .dq-chip').textContent)", timeout=30_000
        )
        assert page.locator(".dqlab button", has_text="Results").is_visible()

        page.wait_for_function(KEPT, timeout=15_000)
        save(page)

    (output,) = nbformat.read(root / "loop.ipynb", as_version=4).cells[1].outputs
    assert set(output.data) == {"text/plain", "text/html"}
    assert "dead" not in output.data["text/plain"].split("\n")[0]


def test_a_run_that_ended_in_an_earlier_kernel_has_its_buttons(server: str) -> None:
    """It was a table: the retry that it calls for had to be typed."""
    with lab_page(server, "again.ipynb") as page:
        execute(page, "notebook:run-all-cells")
        page.locator(".dqlab header button", has_text="Retry 2 with v1").wait_for(timeout=90_000)
        execute(page, "notebook:clear-all-cell-outputs")
        session = "window.jupyterapp.shell.currentWidget.context.sessionContext"
        page.evaluate(f"() => {session}.restartKernel().then(() => 1)")

        execute(page, "notebook:run-all-cells")
        page.locator(".dqlab .dq-chip", has_text="Done, 2 dead").wait_for(timeout=90_000)
        page.wait_for_function(KEPT, timeout=20_000)  # else it is a table after a while
        page.locator(".dqlab header button", has_text="Retry 2 with v1").click()
        page.get_by_text("2 documents sent through again").wait_for(timeout=20_000)
        page.locator(".dqlab .dq-chip", has_text="Done, 2 dead").wait_for(timeout=20_000)


def test_an_edited_cell_is_run_again_and_mended_by_one_press(server: str, root: Path) -> None:
    """The loop that README promises, without a view of the run so far: one comes with the press, and stays.

    The run was over before the page had drawn its view, which was gone then.
    """
    cells = "window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells"
    with lab_page(server, "edited.ipynb") as page:
        execute(page, "notebook:run-all-cells")
        page.get_by_text("done, 20 dead").first.wait_for(timeout=90_000)

        page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
        edited = f"{CELL.strip().splitlines()[0]}\n{MENDED.strip()}"
        page.evaluate(f"(source) => {cells}[1].setSource(source)", edited)
        execute(page, "notebook:run-cell")
        below = page.locator(".jp-CodeCell").nth(1)
        below.get_by_text("this run exists with other code (parse)").wait_for(timeout=20_000)
        below.get_by_role("button", name="Start over").wait_for(timeout=20_000)
        labels = below.locator(".jp-OutputArea button").all_inner_texts()
        assert labels == ["Retry failed documents with this code", "Start over"]
        save(page)
        buttons = nbformat.read(root / "edited.ipynb", as_version=4).cells[1].outputs[-1].data
        assert "done, 20 dead" in buttons["text/html"]
        assert "Retry failed documents with this code" in buttons["text/html"]

        below.get_by_role("button", name="Retry failed documents with this code").click()
        below.get_by_text("Retried 20 documents with parse v2").first.wait_for(timeout=20_000)
        assert below.locator(".jp-OutputArea .jupyter-button").count() == 0
        assert below.get_by_text("Choose:").count() == 0
        below.locator(".dqlab .dq-chip", has_text=re.compile(r"^Done(?!.*dead)")).wait_for(timeout=60_000)

        below.locator(".dqlab button", has_text="Results").click()
        page.wait_for_function(f"() => {cells}.length === 4")
        assert page.evaluate(f"() => {cells}[2].getSource()") == "run.results()"
        execute(page, "notebook:run-cell")
        page.locator(".jp-CodeCell").nth(2).locator("table").wait_for(timeout=20_000)
        page.wait_for_function(KEPT, timeout=20_000)
        save(page)

    outputs = nbformat.read(root / "edited.ipynb", as_version=4).cells[1].outputs
    assert set(outputs[-1].data) == {"text/plain", "text/html"}
    with lab_page(server, "edited.ipynb") as page:
        below = page.locator(".jp-CodeCell").nth(1)
        below.get_by_text("Retried 20 documents with parse v2").first.wait_for(timeout=20_000)
        assert page.get_by_text("model not found").count() == 0


def test_a_press_in_the_view_ends_the_choice_that_the_cell_offers_above_it(server: str) -> None:
    """Its sentences and buttons stayed, and a second press sent 0 documents again, or dropped what had just run."""
    cells = "window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells"
    with lab_page(server, "viewed.ipynb") as page:
        execute(page, "notebook:run-all-cells")
        cell = page.locator(".jp-CodeCell").nth(1)
        cell.locator(".dqlab .dq-chip", has_text="Done, 20 dead").wait_for(timeout=90_000)
        page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
        edited = f"{VIEWED.strip().splitlines()[0]}\n{MENDED.strip()}"
        page.evaluate(f"(source) => {cells}[1].setSource(source)", edited)
        execute(page, "notebook:run-cell")
        cell.get_by_text("Choose:").wait_for(timeout=20_000)
        cell.locator(".jupyter-button").nth(1).wait_for(timeout=20_000)  # they are drawn one by one
        assert cell.locator(".jupyter-button").count() == 2

        cell.locator(".dqlab header button", has_text="Retry 20 with parse v2").click(timeout=20_000)

        cell.get_by_text("Retried 20 documents with parse v2").wait_for(timeout=20_000)
        page.wait_for_function("() => !document.querySelector('.jp-OutputArea .jupyter-button')", timeout=15_000)
        assert cell.get_by_text("Choose:").count() == 0
        cell.locator(".dqlab .dq-chip", has_text=re.compile(r"^Done(?!.*dead)")).wait_for(timeout=20_000)


def test_a_widget_opens_the_dashboard_of_its_own_cluster(server: str) -> None:
    """It opened that of the service which the sidebar showed, the first one."""
    with lab_page(server, "two.ipynb") as page:
        execute(page, "notebook:run-all-cells")
        page.locator(".dqlab .dq-chip", has_text="Running").wait_for(timeout=90_000)
        page.get_by_role("button", name="More", exact=True).first.click()
        page.get_by_role("menuitem", name="Open").click()
        frame = page.locator(".dq-Panel iframe")
        frame.wait_for(state="attached", timeout=30_000)
        assert "dq/dashboard/own/dq?" in (frame.get_attribute("src") or "")
        assert "run=parse" in (frame.get_attribute("src") or "")

        page.locator(".lm-TabBar-tab", has_text="two.ipynb").click()
        page.get_by_role("link", name="Open dashboard").click()
        page.locator(".lm-TabBar-tab.lm-mod-current", has_text="own · own").wait_for(timeout=15_000)
