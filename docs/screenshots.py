"""Take the pictures of README.md and docs: `make screenshots`. They show the real thing, in a real browser."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

sys.path.insert(0, str(Path(__file__).parents[1]))

import dqlab as dq
from tests.browser.lab_server import execute, jupyterlab, lab_page
from tests.kit.chromium import chromium

IMAGES = Path(__file__).parent / "images"
CONNECT = "import dqlab as dq\n\n%load_ext dqlab\n%dq connect -n 2 --store runs/ -o lab\ndocs = dq.Documents.stdlib()"
QUICKSTART = [
    CONNECT,
    """\
%%dq submit --over docs --name outline --retries 0 --watch -o run
import ast


def outline(doc):
    names = [node.name for node in ast.walk(ast.parse(doc.text())) if isinstance(node, ast.FunctionDef)]
    longest = max(names, key=len)  # a module without functions has none: those fail
    return {"functions": len(names), "longest": longest}""",
]
LONGER = [
    CONNECT,
    """\
%%dq submit --over docs --name outline --retries 1 --watch -o run
import ast
import time


def outline(doc):
    tree = ast.parse(doc.text())
    time.sleep(0.04 * doc.page_count)  # as a parser of scanned pages would take
    return max((node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), key=len)""",
    "lab",
]
LOOK_AFTER_S = 55.0
"""Seconds of work until there is an estimate, and a history to be seen."""


def notebook(folder: Path, cells: list[str]) -> str:
    """Write the notebook that is shown; return its name."""
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    shown = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": kernel}
    )
    nbformat.write(shown, folder / "outline.ipynb")
    return "outline.ipynb"


@contextmanager
def running(cells: list[str], **size: Any) -> Iterator[Any]:
    """Run cells in JupyterLab; yield the page."""
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory() as root:
        name = notebook(Path(root), cells)
        with jupyterlab(Path(state), Path(root)) as url, lab_page(url, name, **size) as page:
            execute(page, "application:toggle-left-area")
            execute(page, "notebook:run-all-cells")
            yield page


def outline(doc: dq.Document) -> str:
    """Return the longest name of a function; a module without functions has none."""
    import ast

    tree = ast.parse(doc.text())
    time.sleep(0.04 * doc.page_count)
    return max((node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), key=len)


def quickstart() -> None:
    """Take the picture of the first run, while it works."""
    with running(QUICKSTART, width=1180, height=800) as page:
        page.wait_for_function(
            "() => parseFloat(document.querySelector('.dq-pct')?.innerText) > 40", timeout=60_000, polling=50
        )
        page.screenshot(path=IMAGES / "quickstart.png")


def widgets(*, dark: bool) -> None:
    """Take the pictures of a run and of a lab."""
    with running(LONGER, width=1180, height=1400, dark=dark) as page:
        page.wait_for_function("() => document.querySelectorAll('.dqlab').length > 1", timeout=60_000)
        time.sleep(LOOK_AFTER_S)
        page.locator(".dqlab button[aria-controls]", has_text="Consumers").click()
        time.sleep(2)
        for place, name in enumerate(("run", "lab")):
            page.locator(".dqlab").nth(place).screenshot(path=IMAGES / f"{name}{'-dark' if dark else ''}.png")


def jupyterlab_with_panels(*, dark: bool) -> None:
    """Take the pictures of the sidebar with panels around a notebook, and of the failures of a run."""
    with running(LONGER[:2], width=1500, height=980, dark=dark) as page:
        execute(page, "dqlab:show")
        page.locator(".dq-run").first.wait_for(timeout=60_000)
        execute(page, "dqlab:open-layout")
        time.sleep(LOOK_AFTER_S)
        page.screenshot(path=IMAGES / f"jupyterlab{'-dark' if dark else ''}.png")
        page.locator(".dq-run .dq-badge").first.click()
        page.locator(".dq-trace").first.wait_for(timeout=20_000)  # the second is what it printed
        execute(page, "application:set-mode", {"mode": "single-document"})
        time.sleep(3)
        page.locator(".dq-Fail").screenshot(path=IMAGES / f"failures{'-dark' if dark else ''}.png")


def dashboard() -> None:
    """Take the pictures of the page of panels."""
    with (
        tempfile.TemporaryDirectory() as store,
        dq.connect(n=2, store=store, name="papers") as lab,
        chromium() as browser,
    ):
        lab.queue("pages").map(outline, dq.Documents.stdlib(), name="outline", retry=dq.Retry(1, backoff="20s"))
        lab.queue("thumbs").map(abs, range(20_000), name="thumbs")
        time.sleep(LOOK_AFTER_S)
        for theme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1280, "height": 1500})
            page.goto(f"{lab.panel()}?queue=pages&span=300&theme={theme}")
            time.sleep(5)
            page.screenshot(path=IMAGES / f"dashboard{'-dark' if theme == 'dark' else ''}.png")


def main() -> None:
    """Take all pictures."""
    IMAGES.mkdir(exist_ok=True)
    quickstart()
    widgets(dark=False)
    widgets(dark=True)
    jupyterlab_with_panels(dark=False)
    jupyterlab_with_panels(dark=True)
    dashboard()
    print(*sorted(IMAGES.glob("*.png")), sep="\n")  # noqa: T201 - a script


if __name__ == "__main__":
    main()
