"""A service that no kernel owns, in JupyterLab: its panels as tabs, and controls that outlive the kernel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pytest

import dqlab as dq
from tests.browser.hub_server import USER, jupyterhub, log_in, needs_hub
from tests.browser.lab_server import execute, jupyterlab, lab_page
from tests.kit.chromium import DRAWN, needs_chromium

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180), needs_chromium]

KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
ATTACHED = """
import os, time
from pathlib import Path
import dqlab as dq
Path('pid').write_text(str(os.getpid()))
lab = dq.connect('local', name='papers')
def wait(page):
    time.sleep(0.01)
run = lab.queue('scans').map(wait, range(100_000), name='scan')
"""
BLOCKED = "run.wait(timeout='5m')"
QUEUE = ".dq-queue:has(.dq-name:text-is('{}'))"
OURS = {
    "Queue depth": "individual-dq-depth",
    "Throughput": "individual-dq-throughput",
    "Unacked": "individual-dq-unacked",
    "Failures": "individual-dq-failures",
    "Runs": "individual-dq-runs",
    "Storage": "individual-dq-storage",
    "All six": "dq",
}


def notebook(root: Path, name: str, *cells: str) -> None:
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in cells], metadata={"kernelspec": KERNEL}
    )
    nbformat.write(made, root / name)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("notebooks")
    notebook(root, "papers.ipynb", ATTACHED, BLOCKED)
    notebook(root, "empty.ipynb", "1 + 1")
    return root


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where Jupyter, and clusters that outlive notebooks, keep what they know."""
    state = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state / "xdg"))
        patch.setenv("JUPYTER_RUNTIME_DIR", str(state / "runtime"))
        yield state


@pytest.fixture(scope="module")
def server(state: Path, root: Path) -> Iterator[str]:
    with jupyterlab(state, root) as url:
        yield url


@pytest.fixture(scope="module")
def papers(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cluster that no kernel owns, with a run that has dead documents."""
    store = tmp_path_factory.mktemp("store")
    command = [sys.executable, "-m", "dqlab", "up", "-n", "1", "--name", "papers", "--store", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        assert "dqlab up" in up.stdout.readline()
        with dq.connect("local", name="papers") as lab:
            lab.queue("pages").map(parse, range(200), name="parse", retry=dq.Retry(0)).wait(timeout="30s")
        yield
        up.send_signal(signal.SIGTERM)
        up.stdout.read()


def parse(page: int) -> int:
    if page % 40 == 7:
        raise KeyError("total")
    return page


@contextmanager
def watched(url: str, name: str, **options: Any) -> Iterator[Any]:
    """Open a notebook; afterwards nothing of ours has complained, and no request has left this machine."""
    with lab_page(url, name, **options) as page:
        hosts: set[str | None] = set()
        complaints: list[str] = []
        page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        execute(page, "dqlab:show")
        page.locator("#dqlab-sidebar").wait_for()
        yield page
        assert hosts - {None} <= {"127.0.0.1"}
        assert [each for each in complaints if "dq" in each.lower()] == []


@pytest.mark.usefixtures("papers")
def test_controls_act_while_a_cell_blocks_and_after_the_kernel_died(server: str, root: Path) -> None:
    """That is when they are needed."""
    with watched(server, "papers.ipynb") as page:
        page.locator(".dq-service", has_text="papers").click()
        execute(page, "notebook:run-all-cells")
        queue = page.locator(QUEUE.format("scans"))
        queue.wait_for(timeout=60_000)
        queue.hover()
        queue.get_by_role("button", name="Pause scans").click()
        queue.get_by_role("button", name="Resume scans").wait_for(timeout=5_000)
        assert page.locator(".jp-CodeCell", has_text="run.wait").locator(".jp-InputPrompt", has_text="*").count() == 1

        os.kill(int((root / "pid").read_text()), signal.SIGKILL)
        died = page.locator(".jp-Dialog", has_text="appears to have died")
        died.get_by_role("button").last.click(timeout=30_000)
        died.wait_for(state="detached")
        queue.hover()
        queue.get_by_role("button", name="Resume scans").click()
        queue.get_by_role("button", name="Pause scans").wait_for(timeout=5_000)
        queue.get_by_role("button", name="Pause scans").click()


@pytest.mark.usefixtures("papers")
def test_each_panel_is_a_tab_and_so_are_dasks_own(server: str) -> None:
    """Whatever the dashboard has, below Jupyter's own address."""
    with watched(server, "empty.ipynb") as page:
        open_each_panel(page)
        page.get_by_role("button", name=re.compile("Dask.s own")).click()
        page.get_by_role("menuitem", name="Task Stream").click()
        page.frame_locator("iframe[src*=individual-task-stream]").locator(".bk-Figure").first.wait_for(timeout=20_000)

        page.locator(".lm-TabBar-tab", has_text="Queue depth").click()
        page.wait_for_function(DRAWN, arg="individual-dq-depth", timeout=30_000, polling=100)


def open_each_panel(page: Any) -> None:
    """Open each panel of the service as a tab, and close all but the first."""
    page.locator(".dq-service", has_text="papers").click()
    buttons = page.get_by_role("group", name="Open a panel")
    for name, path in OURS.items():
        buttons.get_by_role("button", name=name, exact=True).click()
        if name == "Failures":  # a tab of JupyterLab's own, which has all of them
            page.locator(".dq-Fail .dq-trace").first.wait_for(timeout=20_000)
        else:
            page.frame_locator(f"iframe[src*='/{path}?']").locator(".bk-Figure, .slick-row").first.wait_for(
                timeout=20_000
            )
        if name != "Queue depth":
            page.locator(".lm-TabBar-tab.lm-mod-current", has_text=name).locator(".lm-TabBar-tabCloseIcon").click()


@needs_hub
@pytest.mark.usefixtures("papers")
@pytest.mark.parametrize(("base", "https"), [("/", False), ("/of/a/team/", True)])
def test_panels_and_controls_work_on_a_jupyterhub(
    tmp_path: Path, state: Path, root: Path, base: str, https: bool
) -> None:
    """It logs users in with its own cookies, allows no frames, and is where many notebooks are opened."""
    with (
        jupyterhub(tmp_path, root, base, runtime=state / "runtime", https=https) as hub,
        watched(f"{hub}user/{USER}/", "empty.ipynb", log_in=log_in(hub)) as page,
    ):
        open_each_panel(page)
        page.wait_for_function(DRAWN, arg="individual-dq-depth", timeout=30_000, polling=100)
        queue = page.locator(QUEUE.format("pages"))
        queue.hover()
        queue.get_by_role("button", name="Pause pages").click()
        queue.get_by_role("button", name="Resume pages").click(timeout=5_000)
        queue.get_by_role("button", name="Pause pages").wait_for(timeout=5_000)
