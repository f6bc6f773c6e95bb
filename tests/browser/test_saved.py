"""Live views whose kernel hangs, dies, or is gone when the notebook is opened again: JupyterLab in a real browser."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.browser.lab_server import execute, jupyterlab, lab_page
from tests.kit.chromium import needs_chromium

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(180), needs_chromium]

CONNECT = """
import os, pathlib
import dqlab as dq
pathlib.Path("pid").write_text(str(os.getpid()))
%load_ext dqlab
%dq connect -n 1 -o lab
"""
STALE = ".dqlab[data-stale=true]"
LIVE = ".dqlab[data-stale=false]"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a notebook that shows a lab, which is live for as long as its kernel."""
    cells = [nbformat.v4.new_code_cell(source.strip()) for source in (CONNECT, "lab")]
    root = tmp_path / "notebooks"
    root.mkdir()
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), root / "lab.ipynb")
    return root


@pytest.fixture
def server(root: Path, tmp_path: Path) -> Iterator[str]:
    """One JupyterLab for a test: kernels are killed here."""
    with jupyterlab(tmp_path / "jupyter", root) as url:
        yield url


def test_a_view_whose_kernel_hangs_is_grey_until_it_goes_on(server: str, root: Path) -> None:
    """It stayed in full colour, with a speed and an end, for as long as somebody believed it."""
    with lab_page(server, "lab.ipynb") as page:
        execute(page, "notebook:run-all-cells")
        page.locator(LIVE).wait_for(timeout=60_000)
        kernel = int((root / "pid").read_text())

        os.kill(kernel, signal.SIGSTOP)
        try:
            page.locator(STALE).wait_for(timeout=15_000)
            assert "No answer since" in page.locator(".dq-notice").inner_text()
        finally:
            os.kill(kernel, signal.SIGCONT)

        page.locator(LIVE).wait_for(timeout=15_000)


def test_a_view_that_was_saved_while_it_was_live_is_shown_as_it_was_saved(server: str, root: Path) -> None:
    """In place of "Error displaying widget: model not found"."""
    with lab_page(server, "lab.ipynb") as page:
        execute(page, "notebook:run-all-cells")
        page.locator(LIVE).wait_for(timeout=60_000)
        execute(page, "docmanager:save")
        page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')", timeout=15_000)
        os.kill(int((root / "pid").read_text()), signal.SIGKILL)
        page.locator(STALE).wait_for(timeout=15_000)

    with lab_page(server, "lab.ipynb") as page:
        page.locator(".dq-twin").wait_for(timeout=60_000)
        output = page.locator(".jp-CodeCell", has_text="lab").last
        assert "saved while it was live" in output.inner_text()
        assert "0 queues" in output.inner_text()
        assert page.get_by_text("model not found").count() == 0
