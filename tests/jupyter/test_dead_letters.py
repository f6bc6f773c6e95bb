"""One dead document, shown."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from dqlab.cluster.transport.sealed import seal_value
from dqlab.frame import Kind
from dqlab.jupyter.messages import find_letter, letter_bundle
from dqlab.runs.failures import DeadLetter


def letter(payload: bytes, message: str = "'<b>'") -> DeadLetter:
    return DeadLetter(
        id=7,
        ordinal=3,
        reason="3 retries used up",
        error="KeyError",
        message=message,
        at="parse:2",
        traceback="Traceback (most recent call last):\n  ...\nKeyError: '<b>'\n",
        fingerprint="f00d",
        key="a.txt",
        deliveries=4,
        exceptions=4,
        version="c0ffee",
        consumer="0",
        when=0.0,
        kind=Kind.ELEMENT,
        payload=payload,
    )


def test_key_of_one_document_is_not_taken_for_the_id_of_another() -> None:
    """A document of a run over numbers is named by its number."""
    failures: Any = [replace(letter(b""), id=3, key=9), replace(letter(b""), id=5, key=3)]

    assert find_letter(failures, "3").key == 3
    assert find_letter(failures, "5").key == 3


def test_document_without_a_key_is_found_by_its_position_as_tables_name_it() -> None:
    """`%dq failed` printed a line to copy, `%dq show '#0'`, which found nothing."""
    failures: Any = [replace(letter(b""), id=70, ordinal=0, key=0), replace(letter(b""), id=50, ordinal=4, key=None)]

    assert find_letter(failures, "#0").id == 70
    assert find_letter(failures, "#4").id == 50
    named: Any = [replace(letter(b""), id=70, ordinal=0, key="#4"), failures[1]]
    assert find_letter(named, "#4").id == 70


def test_letter_escapes_what_came_from_users() -> None:
    """Messages of exceptions hold whatever documents hold."""
    html = letter_bundle(letter(seal_value("x")))["text/html"]

    assert "<b>'" not in html
    assert "&lt;b&gt;" in html


def test_document_that_cannot_be_opened_here_hides_nothing_else() -> None:
    """Its class may live on the workers alone."""
    text = letter_bundle(letter(b"cnowhere\nNothing\n."))["text/plain"]

    assert "cannot be opened here: ModuleNotFoundError" in text
    assert "Traceback" in text


@pytest.mark.parametrize(("length", "shown"), [(40, 2), (5_000, 1)])
def test_a_long_message_is_printed_once(length: int, shown: int) -> None:
    """5,000 characters in the title, and again below, hide the traceback."""
    message = "m" * length
    dead = replace(letter(seal_value("x"), message), traceback=f"Traceback:\nValueError: {message}\n")

    for drawn in letter_bundle(dead).values():
        assert drawn.count("m" * 40) >= shown
        assert drawn.count("m") < shown * length + 100
        assert re.sub(r"<[^>]*>", "", drawn).strip().startswith("a.txt  KeyError")


@pytest.mark.parametrize(
    "mapped",
    ["lab.queue('cells').map(f, ['a'], retry=dq.Retry(0))", "%dq submit f --over ['a'] --queue cells --retries 0"],
)
def test_a_failure_names_the_cell_and_its_line(connected: Any, capsys: Any, mapped: str) -> None:
    """What `lab.map` runs came back as "File /tmp/ipykernel_...", without any line of it."""
    connected.run("import dqlab as dq")
    connected.run("def f(x):\n    y = 1\n    raise KeyError(x + str(y))")
    number = next(reversed(connected.shell.compile._filename_map.values()))
    connected.run(f"run = {mapped}" if mapped.startswith("lab") else f"{mapped} -o run")
    connected.run("%dq wait run -o again")
    capsys.readouterr()
    connected.run("%dq show 0 run")

    shown = capsys.readouterr().out
    assert f"cell [{number}], line 3, in f\n    raise KeyError(x + str(y))\n" in shown
    connected["run"].drop()
