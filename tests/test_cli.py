"""The command `dqlab`, as somebody types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dqlab import __version__
from dqlab.cli import COMMANDS, OF_NOTEBOOKS, main, quickstart


def test_misspelt_command_names_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    """A typo costs one more line of typing, not a look at the manual."""
    status = main(["dmeo"])

    assert status == 2
    assert "Did you mean `dqlab demo`?" in capsys.readouterr().err


def test_unknown_command_lists_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no guess fits, the whole choice is shown."""
    status = main(["xyzzy"])

    assert status == 2
    assert capsys.readouterr().err == f"dqlab: no command 'xyzzy'. Commands: {', '.join([*COMMANDS, *OF_NOTEBOOKS])}.\n"


def test_no_command_prints_the_help_and_is_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    """A script that calls `dqlab` with an empty variable must not pass for done."""
    assert main([]) == 2
    assert "demo" in capsys.readouterr().out


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """A report of a fault quotes this line."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dqlab {__version__}\n"


def test_demo_refuses_options_that_it_does_not_know() -> None:
    """Only `lab` passes words on; elsewhere a word that means nothing is a mistake."""
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--fast"])

    assert ended.value.code == 2


def test_notebook_of_this_directory_comes_first(tmp_path: Path) -> None:
    """Who edits the checkout's notebook opens that one, not a copy shipped with the package."""
    mine = tmp_path / "notebooks" / "quickstart.ipynb"
    mine.parent.mkdir()
    mine.write_text("{}")

    assert quickstart(tmp_path) == mine


def test_demo_of_a_missing_notebook_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong path is the user's to mend: a sentence, not a traceback."""
    status = main(["demo", str(tmp_path / "none.ipynb")])

    assert status == 1
    assert "none.ipynb" in capsys.readouterr().err


def test_demo_plays_the_quickstart_in_a_directory_that_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its queues beside itself, where somebody may have it open."""
    pytest.importorskip("nbclient", reason="the extra `lab` is not installed")
    from dqlab import demo

    played: list[Path] = []
    monkeypatch.setattr(demo, "play", lambda notebook, directory: played.append(directory) or 0)

    assert main(["demo"]) == 0
    assert not played[0].exists()


def test_lab_prints_the_address_of_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without a browser the address is all there is, and the launcher shows no quickstart."""
    labapp = pytest.importorskip("jupyterlab.labapp", reason="the extra `lab` is not installed")
    words: list[str] = []
    monkeypatch.setattr(labapp.LabApp, "launch_instance", words.extend)

    status = main(["lab", "--no-browser"])

    assert status == 0
    assert words[0].endswith("quickstart.ipynb")
    assert "--LabApp.default_url=/lab/tree/quickstart.ipynb" in words
    assert words[-1] == "--no-browser"
