"""`dqlab run`: what a cron line does, and its exit status."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import dqlab as dq
from dqlab.cli.command import main

pytestmark = pytest.mark.filterwarnings("ignore:.*failed. run.failures:dqlab.errors.DqlabWarning")
CODE = """
from nightly_helper import shout

def parse(document):
    if "bad" in document.text():
        raise ValueError("bad")
    return shout(document.text())
"""


@pytest.fixture
def folder(tmp_path: Path, lab: dq.Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a function and one beside it, two documents, and the cluster that all tests share."""
    monkeypatch.setattr("dqlab.cli.here.connect", lambda **options: nullcontext(lab))
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "nightly.py").write_text(CODE)
    (tmp_path / "nightly_helper.py").write_text("def shout(text): return text.upper()")
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "in" / name).write_text(name)
    return tmp_path


def test_a_nightly_line_does_what_is_new_and_its_status_is_the_outcome(
    folder: Path, lab: dq.Lab, queue_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["run", f"{folder}/nightly.py:parse", "--over", f"{folder}/in/*.txt", "--store", "s", "--name", queue_name]
    line += ["-n", "2", "--retries", "0"]
    assert main([*line, "--update"]) == 0
    (folder / "in" / "c.txt").write_text("c.txt")
    assert main(line) == 3
    assert "refused, nothing ran: RunExists" in (said := capsys.readouterr().err)
    assert "--update runs what is new" in said
    assert main([*line, "--update"]) == 0
    assert "1 new, 0 changed, 0 gone; 2 kept" in capsys.readouterr().out
    assert list(lab.attach(queue_name).results()) == ["A.TXT", "B.TXT", "C.TXT"]

    (folder / "in" / "b.txt").write_text("bad")
    (folder / "in" / "a.txt").unlink()
    assert main([*line, "--update", "--keep-gone"]) == 1
    assert main([*line, "--update", "--keep-gone"]) == 1  # it has no result of today yet
    assert "nothing to do, 2 documents listed at" in (said := capsys.readouterr().out)
    assert "1 gone and kept" in said
    assert main([*line, "--update", "--sink", f"{folder}/rows"]) == 3
    assert main([*line, "--over", f"{folder}/none/*", "--update"]) == 3
    lab.attach(queue_name).drop()


@pytest.mark.parametrize("word", ["nightly.py", "none.py:parse", "nightly.py:missing", "broken.py:parse"])
def test_a_word_that_names_no_function_is_misuse(folder: Path, word: str) -> None:
    (folder / "broken.py").write_text("1 / 0")
    assert main(["run", f"{folder}/{word}", "--over", f"{folder}/in/*", "--store", "s"]) == 2
