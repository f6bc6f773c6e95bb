"""`%dq doctor` in a notebook."""

from __future__ import annotations

from typing import Any

from dqlab.checkup.facts import Checkup


def test_checkup_shows_itself_as_html_and_text(connected: Any) -> None:
    found = connected.run("%dq doctor")

    assert isinstance(found, Checkup)
    shown, _ = connected.shell.display_formatter.format(found)
    assert "\nworker 2 " in shown["text/plain"]
    assert shown["text/html"].startswith("<div")


def test_checkup_is_kept_in_a_variable(connected: Any) -> None:
    assert connected.run("%dq doctor --timeout 5 -o found") is None
    assert connected["found"].took < 5
