"""The quickstart notebook, run from a shell: `dqlab demo`.

Owns a kernel while the notebook runs, and prints the output of each cell. Knows the notebook only by the
names `docs`, `run` and `retried`, which it leaves behind, and by the tags of two cells: one closes the lab, and the run
with it, so that figures are taken before; the other is for an audience, and the demo ends before it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from dqlab.stats import RunStats


class _Document(Protocol):
    @property
    def page_count(self) -> int | None: ...


class _Run(Protocol):
    def stats(self) -> RunStats: ...

    def results(self, *, errors: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a played notebook."""

    documents: int
    pages: int
    answered: int
    """Documents that ended with a result."""
    retried: int
    """Documents that failed at first."""
    seconds: float
    """From the start of the run to its end."""

    @classmethod
    def of(cls, docs: Iterable[_Document], run: _Run, retried: int) -> Figures:
        """Count documents, pages and results from the names that the notebook leaves behind."""
        pages = [document.page_count or 0 for document in docs]
        answered = len(run.results(errors="skip"))
        return cls(len(pages), sum(pages), answered, retried, run.stats().elapsed)

    @property
    def missing(self) -> int:
        """Documents without a result."""
        return self.documents - self.answered

    def __str__(self) -> str:
        rate = self.pages / self.seconds if self.seconds > 0 else 0.0
        return (
            f"demo: {self.documents} documents, {self.pages} pages, {self.retried} failed then retried, "
            f"{rate:.0f} pages/s"
        )


def tell(docs: Iterable[_Document], run: _Run, retried: int) -> None:
    """Print the figures as JSON, in the notebook's kernel and while the run still answers."""
    print(json.dumps(asdict(Figures.of(docs, run, retried))))


MAX_LINES = 12
"""Most lines printed of one output."""
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BARE_OBJECT = re.compile(r"<[\w.]+ (object|at 0x)[^>]*>")


def plain(text: str) -> str:
    """Return a text without colours and cursor movements."""
    return _ESCAPE.sub("", text)


def lines_of(outputs: Iterable[nbformat.NotebookNode]) -> Iterator[str]:
    """Yield the lines for people in the outputs of a cell, with the last state of what was drawn over itself."""
    for output in outputs:
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in plain(text).split("\n")]
        lines = [line for line in lines if line and not _BARE_OBJECT.fullmatch(line)]
        yield from lines[:MAX_LINES]
        if len(lines) > MAX_LINES:
            yield f"... {len(lines) - MAX_LINES} more lines"


CELL_TIMEOUT = 900
"""Seconds after which a cell is aborted."""
INTERRUPTED = 130

CLOSES_LAB = "closes-lab"
"""Tag of the cell after which the run no longer answers."""
ENDS_DEMO = "ends-demo"
"""Tag of the cell from which a demo leaves out all cells, since their run takes a minute and is there to be watched."""

_FIGURES_CELL = "from dqlab.cli.demo import tell as _tell\n_tell(docs, run, retried)"


def play(notebook: Path, directory: Path | None = None) -> int:
    """Execute a notebook without a browser, print its progress and at last its figures, and return an exit status."""
    # Tests and scripts read the last line: ``demo: <n> documents, <p> pages, <f> failed then retried, <r> pages/s``.
    # The status is 1 where a cell failed or a document has no result, and 130 after Ctrl-C.
    nb = nbformat.read(notebook, as_version=4)
    del nb.cells[_before(ENDS_DEMO, nb.cells) :]
    counting = _before(CLOSES_LAB, nb.cells)
    nb.cells.insert(counting, nbformat.v4.new_code_cell(_FIGURES_CELL))
    here, own = Path.cwd(), notebook.resolve().parent
    player = _Player(nb, counting, directory or (own if own.is_relative_to(here) else here))
    try:
        figures = player.play()
    except CellExecutionError as error:
        return _failed(player, f"{error.ename}: {plain(error.evalue)}", plain(error.traceback))
    except (CellTimeoutError, DeadKernelError) as error:
        return _failed(player, plain(str(error)), "")
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return INTERRUPTED
    if figures.missing:
        print(f"demo: {figures.missing} of {figures.documents} documents have no result", file=sys.stderr)
    print(figures, flush=True)
    return 1 if figures.missing else 0


class _Player(NotebookClient):
    """Executes the cells in order, and prints the title of each when it begins, and its outputs when it has ended."""

    def __init__(self, nb: nbformat.NotebookNode, counting: int, directory: Path) -> None:
        super().__init__(
            nb, timeout=CELL_TIMEOUT, kernel_name="python3", resources={"metadata": {"path": str(directory)}}
        )
        self.counting = counting
        self.titles = {index: title for index, title in _titles(nb.cells).items() if index != counting}
        self._at, self._began = -1, 0.0
        self.on_cell_execute = self._begin
        self.on_cell_executed = self._end

    def play(self) -> Figures:
        """Execute every cell, with the cell that counts in its place."""
        # Displays that are replaced as text, instead of widgets.
        self.execute(env={"DQLAB_DISPLAY": "static", **os.environ})
        said = "".join(output.get("text", "") for output in self.nb.cells[self.counting].outputs)
        return Figures(**json.loads(said.splitlines()[-1]))

    def where(self) -> str:
        """Return which cell is running, for a sentence."""
        for position, (index, title) in enumerate(self.titles.items(), start=1):
            if index == self._at:
                return f"cell {position} of {len(self.titles)} ({title})"
        return "the cell that counts documents; the notebook leaves behind docs, run and retried"

    def _begin(self, *, cell_index: int, **_: Any) -> None:
        self._at, self._began = cell_index, time.monotonic()
        if cell_index in self.titles:
            number = list(self.titles).index(cell_index) + 1
            print(f"[{number}/{len(self.titles)}] {self.titles[cell_index]}", flush=True)

    def _end(self, *, cell: nbformat.NotebookNode, cell_index: int, **_: Any) -> None:
        if cell_index in self.titles:
            for line in [*lines_of(cell.outputs), f"{time.monotonic() - self._began:.1f} s"]:
                print(f"      {line}", flush=True)


def _before(tag: str, cells: list[nbformat.NotebookNode]) -> int:
    """Return the index of the first cell with a tag, or of the text above it, or the end without such a cell."""
    for index, cell in enumerate(cells):
        if tag in cell.metadata.get("tags", ()):
            while index and cells[index - 1].cell_type == "markdown":
                index -= 1
            return index
    return len(cells)


def _titles(cells: list[nbformat.NotebookNode]) -> dict[int, str]:
    """Name each code cell by the heading above it, else by its first line."""
    titles: dict[int, str] = {}
    heading = ""
    for index, cell in enumerate(cells):
        lines = [line.strip() for line in cell.source.splitlines() if line.strip()]
        if cell.cell_type == "markdown":
            heading = next((line.lstrip("# ") for line in lines if line.startswith("#")), heading)
        elif cell.cell_type == "code" and lines:
            titles[index] = heading or lines[0]
            heading = ""
    return titles


def _failed(player: _Player, reason: str, traceback: str) -> int:
    if traceback:
        print(traceback, file=sys.stderr)
    print(f"demo: {player.where()} failed: {reason}", file=sys.stderr)
    return 1
