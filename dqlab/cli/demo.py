"""The quickstart notebook, run from a shell: `dqlab demo`.

Prints the text of each cell. Knows the notebook only by the names `docs`, `run` and `retried`, which it leaves behind,
and by the tags of two cells: one closes the lab, and the run with it, so that figures are taken before; the other is
for an audience, and the demo ends before it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

CELL_TIMEOUT = 900
"""Seconds after which a cell is aborted."""
INTERRUPTED = 130
CLOSES_LAB = "closes-lab"
"""Tag of the cell after which the run no longer answers."""
ENDS_DEMO = "ends-demo"
"""Tag of the cell from which a demo leaves out all cells, since their run takes a minute and is there to be watched."""
_FIGURES_CELL = "from dqlab.cli.demo import tell as _tell\n_tell(docs, run, retried)"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def tell(docs: Iterable[Any], run: Any, retried: int) -> None:
    """Print the figures of a notebook, while its run still answers, and raise where a document has no result."""
    pages = [document.page_count or 0 for document in docs]
    seconds = run.stats().elapsed
    rate = sum(pages) / seconds if seconds > 0 else 0.0
    print(f"demo: {len(pages)} documents, {sum(pages)} pages, {retried} failed then retried, {rate:.0f} pages/s")
    if missing := len(pages) - len(run.results(errors="skip")):
        raise RuntimeError(f"{missing} of {len(pages)} documents have no result")


def plain(text: str) -> str:
    """Return a text without colours and cursor movements."""
    return _ESCAPE.sub("", text)


def play(notebook: Path, directory: Path | None = None) -> int:
    """Execute a notebook without a browser, print its outputs and at last its figures, and return an exit status."""
    # Tests and scripts read the last line: ``demo: <n> documents, <p> pages, <f> failed then retried, <r> pages/s``.
    # The status is 1 where a cell failed or a document has no result, and 130 after Ctrl-C.
    nb = nbformat.read(notebook, as_version=4)
    del nb.cells[_before(ENDS_DEMO, nb.cells) :]
    counting = _before(CLOSES_LAB, nb.cells)
    nb.cells.insert(counting, nbformat.v4.new_code_cell(_FIGURES_CELL))
    last: list[str] = []

    def show(*, cell: nbformat.NotebookNode, cell_index: int, **_: Any) -> None:
        texts = (each.get("text") or each.get("data", {}).get("text/plain", "") for each in cell.outputs)
        said = plain("\n".join(texts)).strip()
        if cell_index == counting:
            last.append(said)
        elif said:
            print(said, flush=True)

    here, own = Path.cwd(), notebook.resolve().parent
    place = directory or (own if own.is_relative_to(here) else here)
    client = NotebookClient(
        nb, timeout=CELL_TIMEOUT, kernel_name="python3", resources={"metadata": {"path": str(place)}}
    )
    client.on_cell_executed = show
    try:
        # Displays that are replaced as text, instead of widgets.
        client.execute(env={"DQLAB_DISPLAY": "static", **os.environ})
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        print(*last, sep="\n", flush=True)
        print(f"demo: {plain(str(error)).strip()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return INTERRUPTED
    print(*last, sep="\n", flush=True)
    return 0


def _before(tag: str, cells: list[nbformat.NotebookNode]) -> int:
    """Return the index of the first cell with a tag, or the end without such a cell."""
    return next((at for at, cell in enumerate(cells) if tag in cell.metadata.get("tags", ())), len(cells))
