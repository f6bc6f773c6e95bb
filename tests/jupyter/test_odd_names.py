"""The lines of a notebook on documents whose names are not UTF-8."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError

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


@pytest.mark.parametrize(
    "cell", ["%%dq submit --over [2] -o sq\ndef sq(x): return x * x", "%dq submit sq --over [2] -o sq"]
)
def test_run_cannot_take_the_variable_of_its_own_function(connected: Any, cell: str) -> None:
    """The advice after an edit, `%dq retry sq --fn sq`, met the run: "sq is a Run, not a function"."""
    connected.run("def sq(x): return x * x")

    with pytest.raises(UsageError, match=r"-o sq_run\. .*[Nn]othing was submitted"):
        connected.run(cell)

    assert connected["sq"](3) == 9


def test_every_way_out_of_an_edited_run_works_where_the_run_is_named_like_its_function(connected: Any) -> None:
    """Names of runs are no variables."""
    cell = "%%dq submit --over [0] --name sq --retries 0 --wait -o sq_run\ndef sq(x): return {body}"
    connected.run(cell.format(body="1 / x"))
    connected.run(cell.format(body="x"))
    connected.run("%dq retry sq --fn sq")
    assert list(connected["sq_run"].results(timeout=20)) == [0]
    connected.run(cell.format(body="x + 1"))
    connected.run("%dq attach sq -o kept")
    assert list(connected["kept"].results(timeout=20)) == [0]
    connected["kept"].drop()


def test_only_functions_of_the_notebook_are_proposed_in_place_of_an_unknown_one(connected: Any) -> None:
    """`--fn nope` was answered with "Did you mean open?"."""
    connected.run("nop, openly = 1, 2\ndef parsed(x): return x")

    with pytest.raises(UsageError) as unknown:
        connected.run("%dq submit nope --over [1]")
    assert "Did you mean" not in str(unknown.value)
    with pytest.raises(UsageError, match=r"Did you mean parsed\?"):
        connected.run("%dq submit parse --over [1]")
