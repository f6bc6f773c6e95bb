"""Sinks in the words of a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dqlab.errors import RunExists


def test_a_line_names_a_folder_for_the_rows(connected: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cell says where its results go, and the run reads them from there."""
    line = f"%%dq submit --over range(20) --sink {tmp_path}/out --name rows-of-a-line -w -o run"
    cell = f"{line}\ndef double(n): return {{'twice': 2 * n}}"
    connected.run(cell)

    assert list(connected["run"].results()) == [{"twice": 2 * n} for n in range(20)]
    assert list(tmp_path.glob("out/*.parquet"))
    connected.run(cell)  # "run all"
    with pytest.raises(RunExists, match="another sink"):
        connected.run(cell.replace("/out", "/other"))
    capsys.readouterr()

    connected.run("%dq drop rows-of-a-line")
    assert f"its rows stay in {tmp_path}/out. To do it: add -y, and --data" in capsys.readouterr().out
    connected.run("%dq drop rows-of-a-line -y --data")
    assert not (tmp_path / "out").exists()


def test_a_line_names_files_after_their_documents(connected: Any, tmp_path: Path) -> None:
    """The other thing that people want of text extraction."""
    line = f"%%dq submit --over ['a','b'] --sink {tmp_path}/txt/{{ordinal}}.txt -w -o run"
    connected.run(f"{line}\ndef twice(text): return 2 * text")

    assert (tmp_path / "txt" / "1.txt").read_text() == "bb"
