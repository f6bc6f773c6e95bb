"""Lines and buttons in a kernel whose dqlab was installed without the build: they act, and what they show is HTML."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import DqlabWarning
from dqlab.live import display
from dqlab.live.display import set_mode
from dqlab.live.ticker import Ticker
from tests.kit.waiting import until

CELL = "%%dq submit --over [1, 0] --name edited --retries 0 {more} -o run\ndef invert(x): return {body}"


@pytest.fixture
def outputs(connected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What the cells of a kernel without the built widget show."""
    outputs: list[dict[str, Any]] = []

    def publish(data: dict[str, Any]) -> Any:
        outputs.append(data)
        place = len(outputs) - 1
        return SimpleNamespace(update=lambda new, *, raw: outputs.__setitem__(place, new))

    ticker = Ticker()
    monkeypatch.setattr("dqlab.live.canvases.STATIC", tmp_path / "static")
    monkeypatch.setattr("dqlab.jupyter.prompts.in_jupyter", lambda: True)
    monkeypatch.setattr(display, "in_jupyter", lambda: True)
    monkeypatch.setattr(display, "publish", publish)
    monkeypatch.setattr("dqlab.jupyter.prompts.publish", publish)
    monkeypatch.setattr(display, "shared", lambda: ticker)
    set_mode("live")
    yield outputs
    assert ticker.close()


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Layouts that cells display."""
    ipywidgets = pytest.importorskip("ipywidgets", reason="the extra `lab` is not installed")
    boxes: list[Any] = []
    vbox = ipywidgets.VBox

    def recorded(children: Any) -> Any:
        boxes.append(vbox(children))
        return boxes[-1]

    monkeypatch.setattr("ipywidgets.VBox", recorded)
    return boxes


def test_watched_submit_is_waited_for_and_stored(connected: Any, outputs: list[dict[str, Any]]) -> None:
    """The run was submitted, then the view raised: nothing waited for it, and its variable was missing."""
    with pytest.warns(DqlabWarning, match="the live widget has not been built.*make extension"):
        connected.run("%dq submit abs --over range(3) --name unbuilt --watch --wait -o out1")

    assert connected["out1"].done
    assert set(outputs[0]) == {"text/plain", "text/html"}


@pytest.mark.parametrize("label", ["Retry failed documents with this code", "Start over"])
def test_button_that_has_acted_stays_disabled(
    connected: Any, lab: dq.Lab, outputs: list[dict[str, Any]], boxes: list[Any], label: str
) -> None:
    """*Start over* dropped the run and mapped again, failed to show it, and invited to a second press."""
    connected.run(CELL.format(more="--wait --on-existing new", body="1 / x"))
    connected.run(CELL.format(more="", body="x and 1 / x"))
    buttons = boxes[0].children[0].children
    (pressed,) = (button for button in buttons if button.description == label)

    if label == "Start over":
        pressed.click()
        assert pressed.description == "Drop 1 result and 1 failure, and start over"
        assert lab.attach("edited").counts["acked"] == 1, "it asks first"
    with pytest.warns(DqlabWarning, match="make extension"):
        pressed.click()

    assert all(button.disabled for button in buttons)
    assert list(lab.attach("edited").results(timeout=20)) == [1.0, 0]


def test_buttons_are_saved_with_how_the_run_stood_and_how_to_have_them_again(
    connected: Any, outputs: list[dict[str, Any]], boxes: list[Any]
) -> None:
    """Opened again, the notebook said "Error displaying widget: model not found" in their place."""
    connected.run(CELL.format(more="--wait --on-existing new", body="1 / x"))
    connected.run(CELL.format(more="", body="x and 1 / x"))

    (data,) = (data for data in outputs if "application/vnd.jupyter.widget-view+json" in data)
    assert "edited · done, 1 dead · 2 documents" in data["text/html"]
    for kind in ("text/plain", "text/html"):
        assert "done, 1 dead" in data[kind]
        assert "Retry failed documents with this code" in data[kind]
        assert "run the cell again" in data[kind]


def test_a_press_leaves_its_report_and_the_run_in_place_of_the_buttons(
    connected: Any, lab: dq.Lab, outputs: list[dict[str, Any]], boxes: list[Any]
) -> None:
    """They stood beside the report, grey, and were saved as widgets that no kernel has."""
    connected.run(CELL.format(more="--wait --on-existing new", body="1 / x"))
    connected.run(CELL.format(more="", body="x and 1 / x"))
    place = next(at for at, data in enumerate(outputs) if "Start over" in data["text/plain"])
    with pytest.warns(DqlabWarning, match="make extension"):
        boxes[0].children[0].children[0].click()
    lab.attach("edited").wait(timeout=20)
    until(lambda: "edited  done" in outputs[place]["text/plain"])

    said = next(data["text/plain"] for data in outputs if data["text/plain"].startswith("Retried"))
    assert said.startswith("Retried 1 document with invert v2 at "), "in place of the sentences"
    assert not any("Choose" in data["text/plain"] for data in outputs)
    assert set(outputs[place]) == {"text/plain", "text/html"}
    assert "Retried 1 document with invert v2 at " in outputs[place]["text/html"]
    assert "Start over" not in outputs[place]["text/html"]


def test_edited_cell_goes_on_without_ipywidgets(
    connected: Any, outputs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the extra `lab`, and a kernel may lack it: the lines that are shown offer the same choice."""
    connected.run(CELL.format(more="--wait --on-existing new", body="1 / x"))
    monkeypatch.setitem(sys.modules, "ipywidgets", None)

    connected.run(CELL.format(more="", body="x and 1 / x").replace("-o run", "-o second"))

    assert any("Choose:" in data["text/plain"] for data in outputs)
    assert connected["second"].name == "edited"
