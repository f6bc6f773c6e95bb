"""The quickstart, as a person sees it: JupyterLab in a real browser."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab_server import CHROMIUM, execute, jupyterlab, lab_page

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("notebooks")
    shutil.copy(NOTEBOOKS / "quickstart.ipynb", root)
    with jupyterlab(tmp_path_factory.mktemp("jupyter"), root) as url:
        yield url


def test_run_all_shows_moving_progress_and_ends_green(server: str) -> None:
    """The first minute of a new user: Run All, watch, read the failures, retry, all done; nothing leaves the machine."""
    hosts: set[str] = set()
    with lab_page(server, "quickstart.ipynb") as page:
        page.on("request", lambda request: hosts.add(re.sub(r"^\w+://([^/:]+).*", r"\1", request.url)))
        execute(page, "notebook:run-all-cells")
        shares = set()
        share = page.locator(".jp-OutputArea-output").get_by_text(re.compile(r"^\d+(\.\d)? %$")).first
        share.wait_for(timeout=60_000)
        page.wait_for_function("() => document.body.innerText.includes('lab.attach(')", timeout=90_000)
        shares.add(share.inner_text() if share.count() else "")
        page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.status === 'idle'"
            " && ![...document.querySelectorAll('.jp-InputPrompt')].some(p => p.innerText.includes('*'))",
            timeout=120_000,
        )
        errors = page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr'], .jp-mod-error")

        assert page.get_by_text("0 dead").count() or page.get_by_text("'dead': 0").count()
        assert errors.count() == 0
    assert hosts <= {"127.0.0.1"}
