"""Run notebooks and store what their cells show: `make notebooks`; copy them to where `make test` compares that.

Each is played in an empty directory of its own. What belongs to one machine, paths and times of execution, is not
stored, nor is the view of a wait, which depends on how fast the machine is.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

__all__ = ["portable"]

CELL_TIMEOUT = 300
"""Seconds after which a cell is given up."""
PATH = re.compile(r"(?:(?<![\w<./…>~-])|(?<=unix://)|(?<=file://))(?!/usr/bin/env\b)(?:/[\w.+@-]+)+(?=/)")
"""The folders of an absolute path, without the last name; not the end of a tag, nor `pages/s`."""
HOST = re.compile(r"(?<=//)(?!127\.)\d+(?:\.\d+){3}")
WITHOUT_WAITS = '__import__("dqlab.waits").waits.AFTER = float("inf")\n'
"""What the first cell begins with: whether a wait lasts two seconds, and is shown, differs from run to run."""
KEPT = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}


def portable(text: str) -> str:
    """Return a text without what is true on one machine: folders of absolute paths, and addresses that others reach."""
    return HOST.sub("…", PATH.sub("…", text))


def hide_waits(nb: Any) -> Any:
    """Have the first code cell of a notebook hide the views of waits; return the cell."""
    first = next(cell for cell in nb.cells if cell.cell_type == "code")
    first.source = WITHOUT_WAITS + first.source
    return first


def play(path: Path) -> None:
    """Execute a notebook, and store its outputs in it."""
    nb = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="dqlab-notebook-", ignore_cleanup_errors=True) as empty:
        first = hide_waits(nb)
        NotebookClient(
            nb,
            timeout=CELL_TIMEOUT,
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            coalesce_streams=True,
            resources={"metadata": {"path": empty}},
        ).execute()
    first.source = first.source.removeprefix(WITHOUT_WAITS)
    nb.metadata = nbformat.from_dict(KEPT | {"language_info": {"name": "python"}})
    for cell in nb.cells:
        for output in cell.get("outputs", ()):
            if "text" in output:
                output.text = portable(output.text)
            data = output.get("data", {})
            for kind in [kind for kind in data if kind.startswith("text/")]:
                data[kind] = portable(data[kind])
            data.pop("application/vnd.jupyter.widget-view+json", None)  # it lives as long as its kernel
    nbformat.write(nb, path)


def copy(path: Path, folder: Path) -> None:
    """Write a copy of a notebook whose waits show no view."""
    nb = nbformat.read(path, as_version=4)
    hide_waits(nb)
    nbformat.write(nb, folder / path.name)


def main() -> None:
    """Play notebooks, or copy them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copy", type=Path, metavar="FOLDER")
    parser.add_argument("notebooks", type=Path, nargs="+")
    asked = parser.parse_args()
    for path in asked.notebooks:
        if asked.copy is not None:
            copy(path, asked.copy)
        else:
            sys.stdout.write(f"{path}\n")
            play(path)


if __name__ == "__main__":
    main()
