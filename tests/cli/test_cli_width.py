"""What commands of the shell print fits into a terminal of eighty columns."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

import pytest

from dqlab.cli.command import main

STORE = Path(__file__).parents[1] / "golden" / "store-v1"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Eighty columns, and a folder with a store."""
    monkeypatch.setenv("COLUMNS", "80")
    shutil.copytree(STORE, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


LINES = ["store show runs", "store show nodir", "store check runs", "store check nodir"]
LINES += [
    "stats",
    "doctor",
    "status",
    "retry RUN",
    "retry RUN --fn parse",
    "show",
    "status --at tcp://127.0.0.1:1",
    "up -n 0",
    "scale -h",
]
LINES += ["up --n 3", "up --store=", "store show runs --jsonn"]  # refused by the grammar of the command


@pytest.mark.cluster
@pytest.mark.parametrize("line", LINES)
def test_commands_of_the_shell_fit_into_eighty_columns(
    terminal: Path, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal breaks what is longer in the middle of a word."""
    for out in (sys.stdout, sys.stderr):
        monkeypatch.setattr(out, "isatty", lambda: True, raising=False)
    with contextlib.suppress(SystemExit):
        main(line.split())

    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert text.strip()
    assert [each for each in text.splitlines() if len(each) > 80] == []


def test_what_is_piped_is_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    """Its lines are read by programs."""
    main(["nonsense"])

    assert any(len(each) > 80 for each in capsys.readouterr().err.splitlines())
