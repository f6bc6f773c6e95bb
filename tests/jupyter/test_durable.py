"""Durable queues by magics: kept, compacted, and found again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError

from tests.kit.waiting import until

pytestmark = pytest.mark.cluster


@pytest.fixture
def stored(notebook: Any, tmp_path: Path) -> Iterator[Any]:
    """A notebook that is connected with a store."""
    notebook.run(f"%dq connect -n 1 --store {tmp_path / 'store'} -o lab")
    yield notebook
    notebook["lab"].close()


def test_store_keeps_runs_over_connections_and_compaction_keeps_their_results(
    stored: Any, tmp_path: Path, capsys: Any
) -> None:
    stored.run("%dq submit abs --over range(-2000,0) --name kept --wait -o run")
    stored.run("%dq submit abs --over range(-2000,0) --name dropped --wait -o other")
    stored["other"].drop()
    gave = stored.run("%dq compact")
    assert gave.bytes_after < gave.bytes_before
    capsys.readouterr()
    stored.run("%dq gc")
    said = capsys.readouterr().out
    assert said.startswith("default: ")
    with pytest.raises(UsageError, match="Did you mean default"):
        stored.run("%dq compact defalt")

    stored.run("%dq close")
    assert f"Its queues are in {tmp_path / 'store'}" in capsys.readouterr().out
    stored.run(f"%dq connect -n 1 --store {tmp_path / 'store'} -o lab")
    stored.run("%dq attach kept -o back")

    assert list(stored["back"].results()) == list(range(2000, 0, -1))


def test_runs_of_a_store_are_listed_as_soon_as_a_notebook_has_connected_to_it(
    stored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidebar of a notebook that came back was empty until a line had opened the queues by their names."""
    stored.run("%dq submit abs --over range(9) --name kept --wait -o run")
    stored.run("%dq submit len --over ['a'] --name other --queue others --wait -o run")
    stored.run("%dq close")
    monkeypatch.setattr("dqlab.connecting.in_jupyter", lambda: True)

    stored.run(f"%dq connect -n 1 --store {tmp_path / 'store'} -o lab")

    lab = stored["lab"]
    until(lambda: {run.name for run in lab.stats().runs} == {"kept", "other"})
    assert lab.queues == []
    assert lab.queue("others", concurrency=7).consumer_options["concurrency"] == 7, "the options of who opens it"
    assert list(lab.attach("kept").results()) == list(range(9))
