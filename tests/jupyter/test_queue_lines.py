"""Lines about queues: what they do, and what they say before they destroy anything."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError

import dqlab as dq
from dqlab.jupyter.commands import PanelLink


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
