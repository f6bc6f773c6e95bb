"""Who draws the widget, and who gets HTML instead."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from dqlab.live.canvases import draws_widgets, in_vscode

LAB = SimpleNamespace(user_ns={})
VSCODE = SimpleNamespace(user_ns={"__vsc_ipynb_file__": "/home/ana/papers.ipynb"})


@pytest.fixture(autouse=True)
def lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VSCODE_PID", raising=False)
    monkeypatch.delitem(sys.modules, "google.colab", raising=False)


def test_jupyterlab_draws_widgets() -> None:
    pytest.importorskip("anywidget", reason="anywidget is in the extra lab")
    assert draws_widgets(LAB)


def test_vscode_gets_html() -> None:
    assert not draws_widgets(VSCODE)
    assert in_vscode(LAB, {"VSCODE_PID": "1"})


def test_colab_gets_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    assert not draws_widgets(LAB)


def test_without_anywidget_there_is_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not draws_widgets(LAB)
