"""`%dq doctor` in a notebook."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError

from dqlab.checkup.findings import Checkup
from dqlab.jupyter.completion import candidates


def test_checkup_shows_itself_as_html_and_text(connected: Any) -> None:
    found = connected.run("%dq doctor")

    assert isinstance(found, Checkup)
    shown, _ = connected.shell.display_formatter.format(found)
    assert "\nworker 2 " in shown["text/plain"]
    assert shown["text/html"].startswith("<div")


def test_checkup_is_kept_in_a_variable(connected: Any) -> None:
    assert connected.run("%dq doctor --timeout 5 -o found") is None
    assert connected["found"].took < 5


def test_doctor_is_offered_and_meant() -> None:
    assert candidates("%dq do", {}, None) == (["documents", "doctor"], "do")
    assert candidates("%dq doctor --", {}, None) == (["--timeout", "--out"], "--")


def test_misspelt_doctor_is_understood(notebook: Any) -> None:
    assert isinstance(notebook.fails("%dq docter"), UsageError)
    with pytest.raises(UsageError, match=r"Did you mean doctor\?"):
        notebook.run("%dq docter")
