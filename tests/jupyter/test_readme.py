"""The first cells of README show what README says they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from tests.jupyter.conftest import Notebook
from tests.kit.examples import ROOT, blocks


@pytest.fixture
def read_me(notebook: Notebook, lab: dq.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """README's cells, in an empty folder; they connect to the cluster of all tests instead of a new one."""
    monkeypatch.chdir(tmp_path)
    notebook["there"] = lab
    cells = [block.text for block in blocks("text") if block.page == ROOT / "README.md" and "%" in block.text[:2]]
    assert "%dq connect -n 4 --store runs/ -o lab " in cells[0]
    return [cells[0].replace("%dq connect -n 4 --store runs/ -o lab ", "%dq connect there -o lab "), *cells[1:]]


def test_first_block_as_one_cell_shows_the_documents(notebook: Notebook, read_me: list[str], capsys: Any) -> None:
    """Jupyter shows the last value of a cell alone: that was all, without the dashboard, and how-tos had no `lab`."""
    notebook.run(read_me[0])

    shown = capsys.readouterr().out
    assert "; dashboard http" in shown
    assert notebook["lab"] is notebook["there"]
    assert ".py" in shown
    assert "%%dq submit --over docs" in shown


def test_lines_that_are_said_to_be_cells_show_something_each(
    notebook: Notebook, read_me: list[str], queue: dq.QueuePool, capsys: Any
) -> None:
    notebook.run(read_me[0])
    notebook.run(f"%config DQMagics.queue = '{queue.name}'")
    notebook.run(read_me[1].replace("word-count", f"{queue.name}-words"))
    notebook["run"].wait(timeout=60)

    silent = []
    for line in read_me[2].replace("word-count", f"{queue.name}-words").splitlines():
        capsys.readouterr()
        stores = " -o " in line.partition("#")[0]
        if notebook.run(line) is None and not stores and not capsys.readouterr().out.strip():
            silent.append(line)
    assert silent == []
