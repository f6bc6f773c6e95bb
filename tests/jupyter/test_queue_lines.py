"""Lines about queues, sinks and the doctor: what they do, and what they say before they destroy anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError

import dqlab as dq
from dqlab.checkup.facts import Checkup
from dqlab.errors import RunExists
from dqlab.jupyter.commands import PanelLink
from dqlab.live import display as shown
from dqlab.live.display import text_of
from dqlab.live.layout import snapshot_parts
from dqlab.stats import Attention, Severity, Snapshot
from tests.kit.waiting import until


def test_queues_lists_what_any_client_has_open(connected: Any, queue: dq.QueuePool) -> None:
    """Another notebook's queue is where one's own documents may wait behind."""
    snapshot = connected.run("%dq queues")

    assert snapshot.queue(queue.name) is not None
    assert snapshot.runs == ()


def test_drain_refuses_puts_until_resume(
    connected: Any, queue: dq.QueuePool, capsys: pytest.CaptureFixture[str]
) -> None:
    connected.run("%dq drain")

    assert f"queue {queue.name} takes no more" in capsys.readouterr().out
    queue.put(1)
    with pytest.raises(dq.errors.PutError):
        queue.flush()
    connected.run(f"%dq resume {queue.name}")
    queue.put(1)
    queue.flush()


def test_purge_only_says_what_it_would_do_without_y(
    connected: Any, queue: dq.QueuePool, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.pause()
    queue.put_many([1, 2, 3])
    queue.flush()

    assert connected.run("%dq purge --state ready") is None
    assert "3 ready messages would be deleted permanently" in capsys.readouterr().out
    assert queue.counts()["ready"] == 3
    assert connected.run("%dq purge --state ready -y") == 3
    assert queue.counts()["ready"] == 0


def test_scale_changes_how_many_consumers_there_are(connected: Any, queue: dq.QueuePool) -> None:
    connected.run(f"%dq scale 1 {queue.name}")
    snapshot = queue.snapshot()
    while snapshot.consumers_total != 1:
        snapshot = connected["lab"].wait_for_change(snapshot.seq)
        snapshot = queue.snapshot()


def test_history_shows_the_cells_that_ran(connected: Any, queue: dq.QueuePool) -> None:
    connected.run("%dq submit abs --over range(10) --wait -o run")
    timeline = connected.run(f"%dq history {queue.name} --span 1m")

    marks = [mark.text for mark in timeline.marks]
    assert marks == ["submit"]
    assert timeline.marks[0].cell is not None
    assert timeline.marks[0].queue == queue.name
    assert [moment.cells for moment in timeline if moment.cells] == [f"[{timeline.marks[0].cell}] submit"]


def test_open_gives_the_address_of_a_panel(connected: Any) -> None:
    link = connected.run("%dq open depth")

    assert isinstance(link, PanelLink)
    assert link.url.endswith("/individual-dq-depth")
    assert repr(connected.run("%dq open")).endswith("/dq")


def test_config_shows_and_changes_the_defaults_of_lines(connected: Any, capsys: pytest.CaptureFixture[str]) -> None:
    connected.run("%dq config queue=pages display=text")

    assert capsys.readouterr().out.split("\n")[:2] == ["display = text", "queue = pages"]
    assert connected.run("%config DQMagics.queue") == "pages"


@pytest.mark.parametrize("setting", ["display=loud", "colour=red", "queue"])
def test_config_of_something_else_changes_nothing(connected: Any, queue: dq.QueuePool, setting: str) -> None:
    with pytest.raises(UsageError, match="Nothing changed"):
        connected.run(f"%dq config {setting}")

    assert connected.run("%config DQMagics.queue") == queue.name


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


def test_checkup_shows_itself_as_html_and_text(connected: Any) -> None:
    found = connected.run("%dq doctor")

    assert isinstance(found, Checkup)
    shown, _ = connected.shell.display_formatter.format(found)
    assert "\nworker 2 " in shown["text/plain"]
    assert shown["text/html"].startswith("<div")


def test_checkup_is_kept_in_a_variable(connected: Any) -> None:
    assert connected.run("%dq doctor --timeout 5 -o found") is None
    assert connected["found"].took < 5


@pytest.mark.cluster
def test_status_counts_the_documents_that_a_function_puts_off(connected: Any) -> None:
    """They were counted as delayed, and a run of such documents stood there without a reason."""
    connected.run("import dqlab as dq\ndef ask(x): raise dq.Later('1h')")
    connected.run("%dq submit ask --over range(12) --name asks --on-existing new -o asks")
    lab = connected["lab"]

    until(lambda: (run := lab.stats().run("asks")) is not None and run.put_off == 12)

    assert "12 documents put off by their function" in text_of(lab.stats())
    connected["asks"].drop()


def test_what_needs_the_user_is_listed_or_counted() -> None:
    """The widget had four lines, and the printed status three, without a word about the fourth."""
    needs = [Attention(Severity.PROBLEM, "failing", f"{n} dead", "KeyError", run=f"r{n}") for n in range(5)]
    snapshot = Snapshot(at=9.0, seq=1, attention=tuple(needs), attention_total=7)

    bundle = shown.drawn(*snapshot_parts(snapshot))

    for drawn in bundle.values():
        assert all(f"{n} dead" in drawn for n in range(5))
        assert "and 2 more: %dq doctor" in drawn
