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
    monkeypatch.setattr("dqlab.live.frontend.STATIC", tmp_path / "static")
    monkeypatch.setattr("dqlab.jupyter.choice.in_jupyter", lambda: True)
    monkeypatch.setattr(display, "in_jupyter", lambda: True)
    monkeypatch.setattr(display, "publish", publish)
    monkeypatch.setattr(display, "shared", lambda: ticker)
    set_mode("live")
    yield outputs
    assert ticker.close()


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Layouts that cells display."""
    boxes: list[Any] = []
    monkeypatch.setattr("IPython.display.display", boxes.append)
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

    with pytest.warns(DqlabWarning, match="make extension"):
        pressed.click()

    assert all(button.disabled for button in buttons)
    assert list(lab.attach("edited").results(timeout=20)) == [1.0, 0]


def test_edited_cell_goes_on_without_ipywidgets(
    connected: Any, outputs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """They are in the extra `lab`, and a kernel may lack it: the printed lines offer the same choice."""
    connected.run(CELL.format(more="--wait --on-existing new", body="1 / x"))
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "ipywidgets", None)

    connected.run(CELL.format(more="", body="x and 1 / x").replace("-o run", "-o second"))

    assert "Choose:" in capsys.readouterr().out
    assert connected["second"].name == "edited"
