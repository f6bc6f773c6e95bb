"""Knowledge about the notebook or IPython session of this process, without importing IPython."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from dqlab.texts import one_line

_PLACE = re.compile(r'(?P<indent>\s*)File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')
_CELL = re.compile(r"(?:.*[/\\])?ipykernel_\d+[/\\]\d+\.py|<ipython-input-(?P<number>\d+)-\w+>")
"""The files that kernels, and IPython in a terminal, compile cells as."""
_beside: ContextVar[bool] = ContextVar("dqlab_beside_cells", default=False)


class Views(Protocol):
    """Draws what lower rooms hold, and stands above them: `dqlab.live` registers itself."""

    def picture_of(self, what: Any) -> Any:
        """Return how a wait for something is drawn, or None where it is not."""
        ...

    def widget_of(self, source: Any) -> Any:
        """Return the live widget of a run, a queue or a lab."""
        ...


_views: list[Views] = []


def register_views(views: Views) -> None:
    """Let `views` draw from now on."""
    _views[:] = [views]


def views() -> Views:
    """Return what draws."""
    return _views[0]


def shell() -> Any:
    """Return IPython's shell, or None in a process without one."""
    # Not imported: where there is a shell, it is loaded already. A thread that imports it may not be there yet.
    found = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return found() if found is not None else None


def in_script() -> bool:
    """Return whether this process runs a script, so that nobody can type another line after it."""
    return shell() is None and not hasattr(sys, "ps1") and not sys.flags.interactive


def in_jupyter() -> bool:
    """Return whether this process is a Jupyter kernel."""
    return getattr(shell(), "kernel", None) is not None


def program() -> str:
    """Return the notebook or script that runs here, "papers.ipynb in ~/work", or "" for neither."""
    # Jupyter's server names the notebook; a script that a kernel starts inherits the variable.
    file = os.environ.get("JPY_SESSION_NAME") if in_jupyter() else getattr(sys.modules["__main__"], "__file__", None)
    if not file or (shell() is not None and not in_jupyter()):
        return ""
    path, home = Path(file).absolute(), Path.home()
    path = path.parent if path.name == "__main__.py" else path  # of `python -m`
    folder = Path("~", path.parent.relative_to(home)) if path.is_relative_to(home) else path.parent
    return one_line(f"{path.name} in {folder}", 80)


def running_cell() -> int | None:
    """Return the number of the running or next cell, or None outside IPython and where a button acts, not a cell."""
    if _beside.get():
        return None
    count = getattr(getattr(shell(), "displayhook", None), "prompt_count", None)
    return count if isinstance(count, int) else None


@contextmanager
def beside_cells() -> Iterator[None]:
    """Run a block that a button asked for, which belongs to no cell even while one runs."""
    before = _beside.set(True)
    try:
        yield
    finally:
        _beside.reset(before)


def cells_by_file() -> Mapping[str, int]:
    """Return the numbers of the cells that ran here, by the names of the files that they were compiled as."""
    cells: Mapping[str, int] | None = getattr(getattr(shell(), "compile", None), "_filename_map", None)
    return {} if cells is None else cells


def with_cells(traceback: str) -> str:
    """Return another process's traceback with cells named "cell [2], line 4" instead of files, and with their lines."""
    # A cell is not a file: the process that ran its function knows neither its number nor its text, this kernel does.
    numbers = cells_by_file()
    shown: list[str] = []
    lines = traceback.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        place = _PLACE.fullmatch(line)
        cell = None if place is None else _cell(place["file"], numbers)
        if place is None or cell is None:
            shown.append(line)
            continue
        indent = place["indent"]
        shown.append(f"{indent}{cell}, line {place['line']}, in {place['function']}")
        text = linecache.getline(place["file"], int(place["line"])).strip()
        if text and not following.startswith(f"{indent}  "):
            shown.append(f"{indent}  {text}")
    return "\n".join(shown)


def _cell(file: str, numbers: Mapping[str, int]) -> str | None:
    """Return the name of the cell that was compiled as a file, or None for a real file."""
    if file in numbers:
        return f"cell [{numbers[file]}]"
    found = _CELL.fullmatch(file)
    if found is None:
        return None
    # Another kernel's cell, or one from before a restart of this one: its number is unknown here.
    return f"cell [{found['number']}]" if found["number"] else "<cell>"


@contextmanager
def named_after_running_cell(ipython: Any) -> Iterator[None]:
    """Give code that is compiled inside the block the number of the running cell."""
    number, compiler = running_cell(), ipython.compile
    cache = compiler.cache

    # IPython 9 has already counted on to the next cell by then.
    def numbered(code: str, counted: int = 0, **more: Any) -> str:
        name: str = cache(code, number or counted, **more)  # what plays notebooks may give its cells no numbers
        return name

    compiler.cache = numbered
    try:
        yield
    finally:
        del compiler.cache
