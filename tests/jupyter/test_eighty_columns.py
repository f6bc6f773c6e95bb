"""What lines show in a terminal fits into eighty columns."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.jupyter.grammar import COMMANDS
from dqlab.jupyter.wrapping import fitted

LINES = [
    *(
        "documents docs",
        "status",
        "runs",
        "queues",
        "failed",
        "failed {run}",
        "show report-17.txt {run}",
    ),
    *("history", "history --span 2h", "history {queue}", "compact", "compact {queue}", "gc", "explain extract"),
    *(
        "explain labelled",
        "doctor",
        "config",
        "open",
        "attach {run}",
        "watch {run}",
        "wait {run}",
        "results --errors skip {run}",
    ),
    *(
        "retry {run} --where error=='KeyErorr'",
        "retry {run} --fn extract",
        "cancel {run}",
        "purge",
        "drain {queue}",
        "resume {queue}",
    ),
    *("pause {run}", "resume {run}", "scale 1", "drop {run}", "drop {run} -y", "", "connect lab"),
    *(f"{name} -h" for name in COMMANDS),
]

CELL = """
%%dq submit --over docs --name {run} --retries 0 -w -o run
def extract(doc):
    words = doc.text().split()
    if "7" in doc.key:
        raise ValueError(f"no title in {{doc.key}}, " + "which has words, " * 9)
    return {{"title": words[0], "words": len(words)}}
"""


@pytest.fixture
def terminal(connected: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A notebook in a terminal, with a durable queue, and a run in which some documents have failed."""
    monkeypatch.setenv("DQLAB_DISPLAY", "text")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    lab, place = connected["lab"], Path(tempfile.mkdtemp())  # short, as a user's is
    lab.keep_in(place / "runs")
    connected.run("%config DQMagics.queue = 'pages-80'")
    for at in range(30):
        (place / f"report-{at}.txt").write_text(f"Annual report {at} " * 40)
    connected["docs"] = dq.Documents.from_glob(place / "*.txt")
    connected.run(CELL.format(run="word-count"))
    connected.run("threshold = 3\nnames = ['a'] * 1000\ndef labelled(doc):\n    return len(names) > threshold")
    yield connected
    lab.controls("pages-80").close(force=True)
    lab.keep_in(None)
    shutil.rmtree(place)


def test_what_lines_show_fits_into_eighty_columns(terminal: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal breaks what is longer in the middle of a word, and tables beside their columns."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    wide = {}
    for line in LINES:
        terminal.run("%dq " + line.format(run="word-count", queue="pages-80"))
        shown = capsys.readouterr().out
        wide |= {line: [each for each in shown.splitlines() if len(each) > 80]}

    assert {line: found for line, found in wide.items() if found} == {}


def test_words_and_commands_stay_whole() -> None:
    """What is copied from a terminal has to work."""
    address, text = "/a/very/long/path/" + "x" * 80, "It is kept, and comes back with: %dq compact pages-80 now"

    assert fitted(f"see {address}", 40).split("\n") == ["see", address]
    assert fitted(text, 50) == "It is kept, and comes back with:\n%dq compact pages-80 now"
    assert fitted("    %dq retry run --fn extract    # its 17 failed documents", 30).count("\n") == 0
    assert fitted("  - a b c", 7) == "  - a b\n  c"
    assert fitted("one\n\ntwo") == "one\n\ntwo"
