"""Take the pictures of README.md: `make screenshots`. They show the real thing, in a real browser."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.browser.lab_server import execute, jupyterlab, lab_page

IMAGES = Path(__file__).parent / "images"
CELLS = [
    "import dqlab as dq\n\n%load_ext dqlab\n%dq connect -n 2 --store runs/\ndocs = dq.Documents.stdlib()",
    """\
%%dq submit --over docs --name outline --retries 0 --watch -o run
import ast


def outline(doc):
    names = [node.name for node in ast.walk(ast.parse(doc.text())) if isinstance(node, ast.FunctionDef)]
    longest = max(names, key=len)  # a module without functions has none: those fail
    return {"functions": len(names), "longest": longest}""",
]


def notebook(folder: Path) -> str:
    """Write the notebook that is shown; return its name."""
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    shown = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS], metadata={"kernelspec": kernel}
    )
    nbformat.write(shown, folder / "outline.ipynb")
    return "outline.ipynb"


def main() -> None:
    """Run the notebook in JupyterLab and take a picture while it works."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory() as root:
        name = notebook(Path(root))
        with jupyterlab(Path(state), Path(root)) as url, lab_page(url, name, width=1180, height=800) as page:
            execute(page, "application:toggle-left-area")
            execute(page, "notebook:run-all-cells")
            page.wait_for_function(
                "() => parseFloat(document.querySelector('.dq-pct')?.innerText) > 40", timeout=60_000, polling=50
            )
            page.screenshot(path=IMAGES / "quickstart.png")
    print(IMAGES / "quickstart.png")  # noqa: T201 - a script


if __name__ == "__main__":
    main()
