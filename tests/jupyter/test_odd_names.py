"""The lines of a notebook on documents whose names are not UTF-8."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq

NAME = os.fsdecode(b"caf\xe9-3.txt")


def fail(document: dq.Document) -> None:
    raise ValueError(f"{document.key} \x1b[2J")


@pytest.mark.parametrize("word", [NAME, "caf\\xe9-3.txt"], ids=["as it is", "as it is shown"])
def test_show_finds_a_document_by_its_name_as_it_is_and_as_it_is_shown(
    connected: Any, queue: dq.QueuePool, tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    """What stands in the table of failures must be what the next line takes."""
    run = queue.map(fail, [dq.Document(NAME, "", str(tmp_path / NAME))], retry=dq.Retry(0))
    run.wait(timeout=50)
    connected["run"] = run

    for line in ("%dq status", "%dq failed run", f"%dq show {word} run", "%dq results run --errors skip"):
        connected.run(line)
    said = capsys.readouterr().out

    said.encode()
    assert "\x1b[2J" not in said
