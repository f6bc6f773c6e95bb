"""Notebooks played from a shell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import nbformat
import pytest

from dqlab.cli import demo

pytestmark = pytest.mark.cluster

FINISHED_RUN = """
from types import SimpleNamespace
docs = [SimpleNamespace(page_count=n) for n in (1, 2, 7)]
retried = 1
class Run:
    def stats(self):
        return SimpleNamespace(elapsed=2.0)
    def results(self, *, errors):
        return range({answered})
run = Run()
print("three of three")
"""


def write(directory: Path, cells: Sequence[str]) -> Path:
    """A notebook with a heading above each code cell."""
    nb = nbformat.v4.new_notebook()
    for number, source in enumerate(cells, start=1):
        nb.cells += [nbformat.v4.new_markdown_cell(f"## Step {number}"), nbformat.v4.new_code_cell(source)]
    path = directory / "played.ipynb"
    nbformat.write(nb, path)
    return path


def test_played_notebook_ends_with_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts read the last line; people read the titles and prints above it. What it writes beside itself is not."""
    notebook = write(tmp_path, ["open('beside', 'w').close()", FINISHED_RUN.format(answered=3)])
    (tmp_path / "scratch").mkdir()

    status = demo.play(notebook, tmp_path / "scratch")

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[-1] == "demo: 3 documents, 10 pages, 1 failed then retried, 5 pages/s"
    assert "three of three" in lines
    assert (tmp_path / "scratch" / "beside").exists()
    assert not (tmp_path / "beside").exists()


def test_document_without_result_fails_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is the promise that nothing was lost."""
    notebook = write(tmp_path, [FINISHED_RUN.format(answered=2)])

    status = demo.play(notebook)

    said = capsys.readouterr()
    assert status == 1
    assert "1 of 3 documents have no result" in said.err
    assert said.out.splitlines()[-1].startswith("demo: 3 documents")


def test_failing_cell_is_named_with_its_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who reads the log of a failed build has no notebook open."""
    notebook = write(tmp_path, ["x = 1", "{}['missing']"])

    status = demo.play(notebook)

    assert status == 1
    said = capsys.readouterr().err
    assert "{}['missing']" in said
    assert said.splitlines()[-1] == "KeyError: 'missing'"
