"""How a checkup looks: the worst first, lines to copy whole, and nothing that a text of somebody else can break."""

from __future__ import annotations

import re
from dataclasses import replace

from dqlab.checkup.facts import Checkup, Finding
from dqlab.live.layout import checkup_parts
from dqlab.live.render import render_html, render_text
from dqlab.live.style import PLAIN, TextStyle
from dqlab.stats import Severity
from tests.checkup.planted import with_worker
from tests.live.test_html import ALLOWED_ATTRIBUTES, ALLOWED_TAGS, Reader

LONG = "lab.client.restart_workers(['tcp://a-host-with-a-long-name.cluster.example:40123', 'tcp://another:40124'])"
ROWS = with_worker(1, job_left=90.0, direct=False, python="3.11.9", host="n<b>2</b>", ahead=-90.2).rows()
SICK = Checkup(
    "lab local",
    (
        Finding("answers", Severity.PROBLEM, "worker 1 gives <b>no</b> answer", "Restart it", LONG),
        Finding("store", Severity.WARNING, "the store lies in memory\x1b[31m", "Use a directory on a disk"),
        Finding("queues", Severity.NOTE, "queue pages is paused"),
        Finding("store", Severity.OK, "the same everywhere"),
    ),
    ROWS,
    at=0.0,
    took=1.25,
)


def test_text_says_what_is_wrong_and_what_to_do() -> None:
    lines = render_text(checkup_parts(SICK)).splitlines()

    assert lines[0] == "lab local  not healthy: 1 problem, 1 warning, 1 note"
    assert lines[3] == "✕ problem answers: worker 1 gives <b>no</b> answer."
    assert lines[4:6] == ["    Restart it:", f"        {LONG}"]
    assert "    Use a directory on a disk." in lines
    assert "● store: the same everywhere" in lines


def test_below_the_findings_stand_the_facts_of_all_processes() -> None:
    """What is the same everywhere is said once; a column is for what differs, or for what a process has now."""
    heads, *rows, first, second = render_text(checkup_parts(SICK), replace(PLAIN, width=200)).splitlines()[-8:]

    assert heads.split("  ")[0] == "process"
    assert re.split(r"  +", heads)[1:] == [
        *("memory", "late", "files", "clock", "host", "python"),
        *("leaves in", "reached", "pid", "holds", "serves"),
    ]
    assert rows[3].split()[:2] == ["worker", "1"]
    for fact in ("100 MB of 8.0 GB", "-90 s", "3.11.9", "1 min 30 s", "indirectly", "pages"):
        assert fact in rows[3]
    assert "pages/0" in rows[2]
    assert " ".join([first, second]) == (
        "everywhere: dqlab 0.1.0, protocol 1, dask 2026.8.0, distributed 2026.8.0, cloudpickle 3.1.2, msgpack 1.2.4"
    )


def test_lines_fit_the_terminal_but_for_those_to_copy() -> None:
    """A command that was cut is worse than a line that wraps."""
    style = replace(PLAIN, width=60)

    lines = render_text(checkup_parts(SICK), style).splitlines()

    assert [line for line in lines if len(line) > 60] == [f"        {LONG}"]


def test_text_of_others_moves_no_cursor() -> None:
    assert "\x1b" not in render_text(checkup_parts(SICK))


def test_terminal_without_unicode_gets_words() -> None:
    text = render_text(checkup_parts(SICK), TextStyle(unicode=False))

    assert text.isascii()
    assert "problem answers" in text


def test_html_is_inline_and_escaped() -> None:
    """As every fragment that a saved notebook keeps."""
    read = Reader(render_html(checkup_parts(SICK)))

    assert "worker 1 gives <b>no</b> answer" in read.text
    assert LONG in read.text
    assert read.tags <= ALLOWED_TAGS
    assert read.attributes <= ALLOWED_ATTRIBUTES


def test_healthy_checkup_is_true_and_shows_what_was_looked_at() -> None:
    checkup = Checkup("lab local", SICK.findings[2:], ROWS, took=0.1)

    assert checkup
    assert not SICK
    assert repr(checkup).startswith("lab local  healthy: 1 note")
    assert [finding.check for finding in SICK.problems + SICK.warnings] == ["answers", "store"]


def test_plain_data_says_the_same() -> None:
    told = SICK.to_dict()

    assert (told["schema"], told["healthy"], told["took"]) == (1, False, 1.25)
    assert told["findings"][0]["severity"] == "problem"
    assert told["findings"][0]["command"] == LONG


def test_what_only_works_is_not_called_healthy() -> None:
    """A document was stuck for an hour, and the title said "healthy: 1 warning"."""
    found = Finding("leases", Severity.WARNING, "consumer c0 held one document for 1 h")
    checkup = Checkup("lab local", (found,), ROWS)

    assert repr(checkup).startswith("lab local  works, not as it should: 1 warning")
    assert "works, not as it should" in render_html(checkup_parts(checkup))
