"""A live view as a part of somebody's own layout."""

from __future__ import annotations

import pytest

pytest.importorskip("anywidget", reason="the extra `lab` is not installed")
import ipywidgets

import dqlab as dq
from dqlab.live.display import is_watched
from dqlab.testing import Gate
from tests.kit.waiting import until

pytestmark = pytest.mark.lowest


class Held:
    """Returns its element once the gate is open."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def __call__(self, x: int) -> int:
        self.gate.wait(x)
        return x


def test_the_widget_of_a_run_stands_in_a_layout_and_moves(queue: dq.QueuePool, tmp_path: object) -> None:
    """Beside one's own controls; after the end too, for a retry may begin it again."""
    gate = Gate(tmp_path)  # type: ignore[arg-type]
    run = queue.map(Held(gate), range(20))
    widget = run.widget
    box = ipywidgets.VBox([widget, ipywidgets.Button()])
    try:
        assert box.children[0] is widget is run.widget
        assert widget.kind == "run"
        before = dict(widget.head)
        gate.open()
        run.wait(timeout=30)
        until(lambda: widget.head != before and "one" in str(widget.head))
        assert not widget.closed
        assert not is_watched(run)
    finally:
        widget.close()
        box.close()


def test_queue_and_lab_have_one_too(queue: dq.QueuePool, lab: dq.Lab) -> None:
    """By the same mechanism; a closed one is replaced."""
    widgets = [queue.widget, lab.widget]
    assert [widget.kind for widget in widgets] == ["queue", "lab"]
    for widget in widgets:
        widget.close()
    again = queue.widget
    assert again is not widgets[0]
    assert not again.closed
    again.close()
