"""The command `dqlab`, as somebody types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dqlab import __version__
from dqlab.cli.command import main, quickstart


def test_misspelt_command_names_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    """A typo costs one more line of typing, not a look at the manual."""
    status = main(["dmeo"])

    assert status == 2
    assert "Did you mean `dqlab demo`?" in capsys.readouterr().err


def test_an_option_is_not_taken_for_the_one_that_begins_like_it(capsys: pytest.CaptureFixture[str]) -> None:
    """`--stor x` was taken for `--store x`."""
    with pytest.raises(SystemExit):
        main(["up", "--stor", "x"])

    assert "up takes no '--stor'; `dqlab up -h` lists what it takes" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("words", [["up", "--store", ""], ["store", "show", ""], ["store", "check", ""]])
def test_an_empty_path_is_not_the_current_directory(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`dqlab up --store "$STORE"` with an unset variable made a store of the directory one was in."""
    with pytest.raises(SystemExit, match="2"):
        main(words)

    assert "'' names no file or directory; '.' is the current directory" in capsys.readouterr().err


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """A report of a fault quotes this line."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dqlab {__version__}\n"


def test_notebook_of_this_directory_comes_first(tmp_path: Path) -> None:
    """Who edits the checkout's notebook opens that one, not a copy shipped with the package."""
    mine = tmp_path / "notebooks" / "quickstart.ipynb"
    mine.parent.mkdir()
    mine.write_text("{}")

    assert quickstart(tmp_path) == mine


def test_demo_plays_the_quickstart_in_a_directory_that_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its queues beside itself, where somebody may have it open."""
    pytest.importorskip("nbclient", reason="the extra `lab` is not installed")
    from dqlab.cli import demo

    played: list[Path] = []
    monkeypatch.setattr(demo, "play", lambda notebook, directory: played.append(directory) or 0)

    assert main(["demo"]) == 0
    assert not played[0].exists()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What JupyterLab is started with, in an empty folder; nothing is started."""
    labapp = pytest.importorskip("jupyterlab.labapp", reason="the extra `lab` is not installed")
    words: list[str] = []
    monkeypatch.setattr(labapp.LabApp, "launch_instance", words.extend)
    monkeypatch.chdir(tmp_path)
    return words


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    """A quickstart that somebody has changed a cell of."""
    return write_cells(tmp_path / "quickstart.ipynb", "print('mine')")


def write_cells(notebook: Path, *sources: str) -> Path:
    cells = [{"cell_type": "code", "source": source, "outputs": [], "metadata": {}} for source in sources]
    notebook.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return notebook


def test_lab_prints_the_address_of_the_notebook(launched: list[str]) -> None:
    """On a machine without a browser the address is all there is, and the launcher shows no quickstart."""
    status = main(["lab", "--no-browser"])

    assert status == 0
    assert launched[0].endswith("quickstart.ipynb")
    assert "--LabApp.default_url=/lab/tree/quickstart.ipynb" in launched
    assert launched[-1] == "--no-browser"


@pytest.mark.parametrize("where", [".venv/lib/site-packages/dqlab", "."], ids=["venv", "checkout"])
def test_lab_opens_this_folder_wherever_dqlab_lies(
    launched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Served from site-packages, a person's own files are out of reach, and the next update deletes what is saved."""
    shipped = tmp_path / where / "notebooks" / "quickstart.ipynb"
    shipped.parent.mkdir(parents=True)
    write_cells(shipped, "import dqlab")
    package = shipped.parents[1] if shipped.parents[1].name == "dqlab" else shipped.parents[1] / "dqlab"
    monkeypatch.setattr("dqlab.cli.command.__file__", str(package / "cli" / "command.py"))

    main(["lab"])

    copy = tmp_path / "quickstart.ipynb"
    assert launched[0] == str(copy)
    assert f"--ServerApp.root_dir={tmp_path}" in launched
    assert copy.read_bytes() == shipped.read_bytes()


@pytest.mark.parametrize("given", [["--notebook-dir={}"], ["--notebook-dir", "{}"], ["--ServerApp.root_dir={}"]])
def test_folder_that_lab_is_told_gets_the_copy(launched: list[str], tmp_path: Path, given: list[str]) -> None:
    """Jupyter's own option wins: JupyterLab refuses a notebook that is not below its root."""
    (tmp_path / "there").mkdir()

    main(["lab", *(word.format("there") for word in given)])

    assert launched[0] == str(tmp_path / "there" / "quickstart.ipynb")
    assert [word for word in launched if "_dir" in word] == [f"--ServerApp.root_dir={tmp_path / 'there'}"]
    assert not (tmp_path / "quickstart.ipynb").exists()


def test_lab_opens_the_folder_that_is_named(launched: list[str], tmp_path: Path) -> None:
    """The quickstart was copied to where one was, and Jupyter ended with its usage."""
    (tmp_path / "there").mkdir()

    main(["lab", "there", "--no-browser"])

    assert launched[0] == str(tmp_path / "there" / "quickstart.ipynb")
    assert [word for word in launched if "_dir" in word] == [f"--ServerApp.root_dir={tmp_path / 'there'}"]
    assert launched[-1] == "--no-browser"
    assert not (tmp_path / "quickstart.ipynb").exists()


def test_lab_on_a_file_says_that_it_takes_a_folder(
    launched: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").touch()

    assert main(["lab", "a.txt"]) == 1

    assert "a.txt is not a folder. It takes an existing folder" in " ".join(capsys.readouterr().err.split())
    assert launched == []


def test_edited_quickstart_is_kept(launched: list[str], edited: Path) -> None:
    """A file of a person is not overwritten."""
    main(["lab"])

    assert "mine" in edited.read_text()
    assert launched[0] == str(edited)
