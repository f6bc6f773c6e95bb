"""The quickstart notebook, run from a shell: what `dqlab demo` does.

Owns a kernel for as long as the notebook takes, and prints what the cells say while they say it.
Knows the notebook only by three names that it leaves behind, `docs`, `run` and `retried`, and by two
tags: of the cell that closes the lab (with the lab goes the run, so the figures are taken before it), and of
the cell that is for somebody who looks on, before which the demo ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from dqlab.cli.figures import Figures
from dqlab.cli.narration import Narrator, plain

__all__ = ["play"]

CELL_TIMEOUT = 900
"""Seconds after which a cell is given up."""
SILENCE = 10.0
"""Seconds without a line after which one says that the cell still works."""
INTERRUPTED = 130

CLOSES_LAB = "closes-lab"
"""Tag of the cell after which the run can no longer be asked."""
ENDS_DEMO = "ends-demo"
"""Tag of the cell that a demo leaves out, with all that follows: a run of a minute, to be watched and tried."""

_FIGURES_CELL = "from dqlab.cli.figures import tell as _tell\n_tell(docs, run, retried)"


def play(notebook: Path, directory: Path | None = None) -> int:
    """Execute a notebook without a browser and print its progress.

    The last line printed is ``demo: <n> documents, <p> pages, <f> failed then retried, <r> pages/s``.

    Parameters
    ----------
    notebook : Path
        Leaves behind `docs` (documents with `page_count`), `run` (a Run) and `retried` (how many
        documents failed first). If it closes the lab, that cell has the tag "closes-lab".
    directory : Path, optional
        Where it is played, and leaves its files. Default: its own directory when that is below the current one,
        else the current one.

    Returns
    -------
    int
        0 when every document ended with a result, 1 when not or when a cell failed, 130 when interrupted.
    """
    nb = nbformat.read(notebook, as_version=4)
    del nb.cells[_before(ENDS_DEMO, nb.cells) :]
    counting = _before(CLOSES_LAB, nb.cells)
    nb.cells.insert(counting, nbformat.v4.new_code_cell(_FIGURES_CELL))
    here, own = Path.cwd(), notebook.resolve().parent
    player = _Player(nb, counting, directory or (own if own.is_relative_to(here) else here))
    try:
        figures = asyncio.run(player.play())
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
    """Executes the cells in order and passes on each message of the kernel as it comes."""

    def __init__(self, nb: nbformat.NotebookNode, counting: int, directory: Path) -> None:
        super().__init__(
            nb,
            timeout=CELL_TIMEOUT,
            kernel_name="python3",
            resources={"metadata": {"path": str(directory)}},
        )
        self.counting = counting
        self.titles = {index: title for index, title in _titles(nb.cells).items() if index != counting}
        self.narrator = Narrator(sys.stdout)
        self._at = -1
        self.on_cell_execute = self._begin
        self.on_cell_executed = self._end

    async def play(self) -> Figures:
        """Execute every cell, and among them the one that counts."""
        env = {"DQLAB_DISPLAY": "static", **os.environ}  # displays that are replaced as text, not widgets
        beat = asyncio.create_task(self.narrator.beat(SILENCE))
        try:
            await self.async_execute(env=env)
        finally:
            beat.cancel()
        said = "".join(output.get("text", "") for output in self.nb.cells[self.counting].outputs)
        return Figures(**json.loads(said.splitlines()[-1]))

    def process_message(self, msg: dict[str, Any], cell: nbformat.NotebookNode, cell_index: int) -> Any:
        """Print what a message says, then let nbclient keep it."""
        if cell_index != self.counting:
            self.narrator.hear(msg["msg_type"], msg["content"])
        return super().process_message(msg, cell, cell_index)

    def where(self) -> str:
        """Return which cell the notebook stands at, for a sentence."""
        for position, (index, title) in enumerate(self.titles.items(), start=1):
            if index == self._at:
                return f"cell {position} of {len(self.titles)} ({title})"
        return "the cell that counts documents; the notebook leaves behind docs, run and retried"

    def _begin(self, *, cell_index: int, **_: Any) -> None:
        self._at = cell_index
        if cell_index in self.titles:
            number = list(self.titles).index(cell_index) + 1
            self.narrator.begin(f"[{number}/{len(self.titles)}] {self.titles[cell_index]}")

    def _end(self, **_: Any) -> None:
        self.narrator.end()


def _before(tag: str, cells: list[nbformat.NotebookNode]) -> int:
    """Return the place in front of the first cell with a tag, and of the text above it; without one, the end."""
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
    player.narrator.end()
    if traceback:
        print(traceback, file=sys.stderr)
    print(f"demo: {player.where()} failed: {reason}", file=sys.stderr)
    return 1
