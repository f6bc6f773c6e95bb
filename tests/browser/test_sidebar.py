"""The sidebar as a person uses it: beside a busy kernel, after a reload, and when the kernel is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pytest

from tests.browser.lab_server import BASE, execute, jupyterlab, lab_page
from tests.kit.chromium import needs_chromium

pytest.importorskip("dqlab.jupyter.server", reason="Jupyter's server has no part of dqlab here")

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180), needs_chromium]

WORK = """
import time
import dqlab as dq
%load_ext dqlab
lab = dq.connect(n=2)
def parse(number):
    time.sleep(0.03)
    if number % 5 == 0:
        raise KeyError("total")
    return number
run = lab.map(parse, range(400), name="parse-invoices", retry=dq.Retry(0))
"""
BLOCK = "run.wait(timeout='2m')\nprint('no longer', 'blocked')"
IN_VIEW = """selector => {
  const row = document.querySelector(selector)
  const { left, top, height } = row.getBoundingClientRect()
  return row.contains(document.elementFromPoint(left + 60, top + height / 2))
}"""
ABOVE_FOOT = """() => {
  const [frame, row, foot] = ["frame", "class", "foot"].map(
    (name) => document.querySelector(`.dq-Fail .dq-${name}`).getBoundingClientRect()
  )
  return frame.bottom - (row.top + row.height / 2 + foot.height / 2)
}"""
"""Script: how much lower the page must be for the buttons to lie over the first class."""
RUN = '[data-row="run default parse-invoices"]'


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A JupyterLab with a notebook that blocks its kernel, and one that does not; all that it starts ends with it."""
    root = tmp_path_factory.mktemp("notebooks")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for name, cells in (("blocked", [WORK, BLOCK]), ("free", [WORK, "%dq open"])):
        code = [nbformat.v4.new_code_cell(cell.strip()) for cell in cells]
        nbformat.write(nbformat.v4.new_notebook(cells=code, metadata=kernel), root / f"{name}.ipynb")
    with jupyterlab(tmp_path_factory.mktemp("jupyter"), root) as url:
        yield url


def open_sidebar(page: Any) -> None:
    """Show the sidebar, with the run in it."""
    execute(page, "dqlab:show")
    page.wait_for_selector(f".dq-Side {RUN}", timeout=60_000)


def says(page: Any, selector: str, words: str) -> None:
    """Wait until an element says something."""
    page.locator(selector, has_text=words).first.wait_for(timeout=20_000)


def restart_kernel(page: Any) -> None:
    """End the kernel of the notebook, and all that it has started."""
    panel = '[...window.jupyterapp.shell.widgets("main")].find((each) => each.context?.sessionContext)'
    page.wait_for_function(f"() => {panel}?.context.sessionContext.session?.kernel?.status === 'idle'", timeout=30_000)
    page.evaluate(
        f"""() => {{
            const panel = {panel};
            window.jupyterapp.shell.activateById(panel.id);
            panel.context.sessionContext.session.kernel.restart();
            return 1;
        }}"""
    )


def test_sidebar_pauses_and_resumes_a_run_while_its_kernel_is_blocked(server: str) -> None:
    """A control that waits for the cell is of no use while the cell runs."""
    hosts: set[str | None] = set()
    with lab_page(server, "blocked.ipynb") as page:
        page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
        execute(page, "notebook:run-all-cells")
        open_sidebar(page)
        page.hover(RUN)
        page.click(f"{RUN} .dq-toggle")
        says(page, f"{RUN} .dq-when", "paused")
        assert "no longer blocked" not in page.inner_text(".jp-Notebook")

        page.click('.dq-pan button:text-is("Queue depth")')
        frame = page.wait_for_selector(".dq-Panel iframe").content_frame()
        frame.get_by_text("Queue depth by state").wait_for(timeout=20_000)
        path = urlsplit(frame.url).path  # with the id of the service, which names the notebook and its folder
        assert path.startswith(f"{BASE}dq/dashboard/blocked-ipynb-in-")
        assert path.endswith("/individual-dq-depth")

        page.hover(RUN)
        page.click(f"{RUN} .dq-toggle")
        says(page, f"{RUN} .dq-when", "some dead")
        page.locator(".jp-OutputArea-output", has_text="no longer blocked").wait_for(state="attached", timeout=60_000)
    assert hosts - {None} <= {"127.0.0.1"}


def test_failures_are_retried_by_class_and_a_panel_outlives_reload_and_kernel(server: str) -> None:
    """What was arranged once stays, and says where it stands when what it shows has ended."""
    with lab_page(server, "free.ipynb") as page:
        execute(page, "notebook:run-all-cells")
        open_sidebar(page)
        says(page, f"{RUN} .dq-when", "some dead")
        page.click(f"{RUN} .dq-badge")
        page.wait_for_selector(".dq-Fail .dq-class")
        says(page, ".dq-Fail .dq-trace", "KeyError")
        says(page, ".dq-Fail .dq-trace", "cell [1], line 8, in parse")  # it was a file of the kernel's, without a line
        says(page, ".dq-Fail .dq-trace", 'raise KeyError("total")')
        assert "80 dead in 1 class" in page.inner_text(".dq-Fail header")
        size = page.viewport_size
        low = size["height"] - page.evaluate(ABOVE_FOOT)
        page.set_viewport_size({"width": size["width"], "height": round(low)})
        page.wait_for_function(f"selector => !({IN_VIEW})(selector)", arg=".dq-Fail .dq-class", timeout=10_000)
        page.focus(".dq-Fail .dq-class")
        page.wait_for_function(IN_VIEW, arg=".dq-Fail .dq-class", timeout=10_000)  # it was under the buttons
        page.set_viewport_size(size)
        page.click('.dq-buttons button:text-is("Retry 80")')
        says(page, ".dq-Fail .dq-said", "80 documents")

        page.wait_for_selector(".jp-OutputArea-output a[data-dq-panel]", state="attached", timeout=30_000)
        with page.expect_response(lambda answer: "api/workspaces" in answer.url and answer.request.method == "PUT"):
            page.evaluate("() => document.querySelector('.jp-OutputArea-output a').click()")
            page.wait_for_selector(".dq-Panel iframe")
        page.reload()
        page.wait_for_selector('.dq-Panel iframe[src*="dq/dashboard/"]', state="attached", timeout=60_000)
        page.wait_for_selector(f".dq-Side {RUN}", timeout=30_000)

        restart_kernel(page)
        # The tab is behind the notebook now. A kernel that closes its lab in time leaves no service.
        gone = re.compile("ended at|not among the services")
        page.locator(".dq-Panel .dq-absent", has_text=gone).wait_for(state="attached", timeout=20_000)
        assert page.locator(".dq-Panel iframe").get_attribute("src") == "about:blank"
        execute(page, "notebook:run-all-cells")
        page.wait_for_selector('.dq-Panel iframe[src*="dq/dashboard/"]', state="attached", timeout=60_000)
        page.wait_for_function("() => document.querySelector('.dq-Panel .dq-absent').hidden", timeout=20_000)


def test_a_click_on_a_run_or_a_queue_opens_its_page(server: str) -> None:
    """Only Enter did; a click moved the focus, and nothing else happened."""
    with lab_page(server, "free.ipynb") as page:
        execute(page, "notebook:run-all-cells")
        open_sidebar(page)
        page.click(f"{RUN} .dq-bar")
        frame = page.wait_for_selector(".dq-Panel iframe[src*='run=parse-invoices']").content_frame()
        frame.get_by_text("parse-invoices").first.wait_for(timeout=30_000)
        page.click('[data-row="queue default"] .dq-name')
        page.wait_for_selector(".dq-Panel iframe:not([src*='run=']):not([src='about:blank'])", timeout=30_000)


def test_dead_documents_of_an_ended_run_stay_in_sight_until_they_are_dismissed(server: str) -> None:
    """Who was away when a run ended finds what failed as the first thing, with what can be done about it."""
    need = '.dq-need[data-row="ended default parse-invoices"]'
    with lab_page(server, "free.ipynb") as page:
        execute(page, "notebook:run-all-cells")
        open_sidebar(page)
        says(page, f"{need} .dq-words", "80 dead in parse-invoices, done")
        assert page.inner_text(".dq-Side .dq-tree .dq-sec >> nth=0").split() == ["NEEDS", "YOU", "1"]
        assert page.inner_text(".dq-service .dq-count") == "1 needs you"
        page.click(f'{need} button:text-is("Failures")')
        page.wait_for_selector(".dq-Fail .dq-class")

        page.click(f"{need} .dq-dismiss")
        page.wait_for_selector(need, state="detached")
        assert page.evaluate("() => document.activeElement.closest('.dq-needs') !== null")
        with page.expect_response(lambda answer: "/snapshot" in answer.url):
            page.reload()
        page.wait_for_selector(f".dq-Side {RUN}", timeout=60_000)
        says(page, ".dq-needs .dq-foot", "1 dismissed")
        assert page.locator(need).count() == 0

        page.click('.dq-needs .dq-foot button:text-is("Bring back")')
        page.click(f"{need} .dq-dismiss")
        page.hover(RUN)
        page.click(f"{RUN} .dq-more")
        page.click('.dq-Menu >> text="Retry 80"')
        says(page, f"{need} .dq-words", "80 dead")  # they have failed again: that is news
