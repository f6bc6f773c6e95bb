"""Run notebooks and store what their cells show: `make notebooks`.

Each is played in an empty directory of its own, as `make test` does when it compares what it shows with what is stored.
What belongs to one machine, paths and times of execution, is not stored.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

__all__ = ["portable"]

CELL_TIMEOUT = 300
"""Seconds after which a cell is given up."""
PATH = re.compile(r"(?:(?<![\w<./…>~-])|(?<=unix://)|(?<=file://))(?!/usr/bin/env\b)(?:/[\w.+@-]+)+(?=/)")
"""The folders of an absolute path, without the last name; not the end of a tag, nor `pages/s`."""
HOST = re.compile(r"(?<=//)(?!127\.)\d+(?:\.\d+){3}")
KEPT = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}


def portable(text: str) -> str:
    """Return a text without what is true on one machine: folders of absolute paths, and addresses that others reach."""
    return HOST.sub("…", PATH.sub("…", text))


def play(path: Path) -> None:
    """Execute a notebook, and store its outputs in it."""
    nb = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="dqlab-notebook-", ignore_cleanup_errors=True) as empty:
        NotebookClient(
            nb,
            timeout=CELL_TIMEOUT,
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            coalesce_streams=True,
            resources={"metadata": {"path": empty}},
        ).execute()
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


def main(paths: list[str]) -> int:
    """Play notebooks; return the exit status."""
    for path in paths:
        sys.stdout.write(f"{path}\n")
        play(Path(path))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
